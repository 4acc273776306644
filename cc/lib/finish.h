/* How a connection ends; see finish.c. */
#ifndef CC_FINISH_H
#define CC_FINISH_H

/* Says goodbye to the client; the caller closes. Never waits. */
void cci_finish(int fd);

#endif
