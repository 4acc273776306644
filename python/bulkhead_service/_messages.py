"""The messages of a service, as the crate `wire` has them: written by `BLESS=1 cargo test -p wire`, and by nobody else."""

from ._codec import ADDRESS, BOOL, U16, U32, U64, Bytes, Choice, Edge, List, Raw, Record, Text

VERSION = 1
MESSAGE_MAX = 67584
BUNDLES_MAX = 64
NUMBERS_MAX = 1024
PART_MAX = 61440
PARAMETERS_BYTES_MAX = 4194304
VALUES_MAX = 4096
CALLS_MAX = 128
TIMEOUTS_MAX = 4096
WORD_WAIT_MS = 80
LOG_BATCH_MAX = 49152
LOG_RECORD_MAX = 3471
LOG_TEXT_MAX = 1024
ORDER_ANSWER_MAX = 16384

LAUNCHER_TO_SERVICE = Edge("LAUNCHER_TO_SERVICE", VERSION, {
    1: ("Limits", (("limits", Record("WorkerLimits", ("head_bytes", U32), ("head_timeout_ms", U32), ("body_bytes", U64), ("idle_timeout_ms", U32), ("start_timeout_ms", U32), ("connections", U32), ("flush_ms", U32), ("idle_stop_ms", U32))), ("site", U16), ("owns_host", BOOL), ("dumps", BOOL), ("jit", BOOL),)),
    2: ("Begin", ()),
    3: ("Attach", (("source", Choice("Source", (0, "Gate"), (1, "Site"))),)),
    4: ("Report", ()),
    5: ("DataSource", (("name", Text(63)),)),
    6: ("DataProxy", (("name", Text(63)), ("token", Raw(20)),)),
    7: ("Templates", ()),
    8: ("Publisher", ()),
    9: ("Orders", ()),
})
CHILD_TO_LAUNCHER = Edge("CHILD_TO_LAUNCHER", VERSION, {
    1: ("Ready", ()),
    2: ("Counters", (("counters", Record("Counters", ("connections_now", U32), ("connections", U64), ("requests", U64))),)),
    27: ("Idle", ()),
})
TO_WORKER = Edge("TO_WORKER", VERSION, {
    1: ("Connection", (("bundle", Record("Bundle", ("id", U64), ("peer", ADDRESS), ("local", ADDRESS), ("kind", Choice("Kind", (0, "Plain"), (1, "Relayed"), (2, "Tls"), (3, "Http2"), (4, "RelayedTls10"), (5, "RelayedTls11"), (6, "RelayedTls2"))), ("preread", Bytes(65536)))),)),
    2: ("Connections", (("bundles", List(Record("Bundle", ("id", U64), ("peer", ADDRESS), ("local", ADDRESS), ("kind", Choice("Kind", (0, "Plain"), (1, "Relayed"), (2, "Tls"), (3, "Http2"), (4, "RelayedTls10"), (5, "RelayedTls11"), (6, "RelayedTls2"))), ("preread", Bytes(65536))), 64)),)),
})
FROM_WORKER = Edge("FROM_WORKER", VERSION, {
    1: ("Returns", (("credits", U16), ("done", List(U64, 1024)),)),
    3: ("Drain", ()),
})
SERVICE_TO_DATA_PROXY = Edge("SERVICE_TO_DATA_PROXY", VERSION, {
    1: ("Login", (("token", Raw(20)),)),
    2: ("Call", (("id", U32), ("name", Text(63)), ("complete", BOOL), ("values", Bytes(61440)),)),
    3: ("More", (("id", U32), ("complete", BOOL), ("values", Bytes(61440)),)),
    4: ("Cancel", (("id", U32),)),
    5: ("Pause", (("id", U32),)),
    6: ("Resume", (("id", U32),)),
    7: ("Timeouts", ()),
})
DATA_PROXY_TO_SERVICE = Edge("DATA_PROXY_TO_SERVICE", VERSION, {
    1: ("Welcome", ()),
    2: ("Part", (("id", U32), ("results", Bytes(61440)),)),
    3: ("Done", (("id", U32), ("results", Bytes(61440)),)),
    4: ("Failed", (("id", U32), ("fault", Choice("CallFault", (0, "Refused"), (1, "Parameters"), (2, "TooLarge"), (3, "Busy"), (4, "Late"), (5, "Constraint"), (6, "Database"), (7, "Lost"))), ("reason", Text(512)),)),
    5: ("Timeouts", (("usual_ms", U32),)),
    6: ("Timeout", (("name", Text(63)), ("timeout_ms", U32),)),
})
ADMIN_TO_SERVICE = Edge("ADMIN_TO_SERVICE", VERSION, {
    1: ("Diagnostics", ()),
    2: ("Order", (("name", Text(63)), ("argument", Text(2048)),)),
})
SERVICE_TO_ADMIN = Edge("SERVICE_TO_ADMIN", VERSION, {
    1: ("Done", (("text", Text(16384)),)),
    2: ("Failed", (("reason", Text(16384)),)),
})
