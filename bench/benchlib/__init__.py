"""The parts of bench/run: programs needed, servers, CPU accounting, wrk, statistics, and the three reports."""
