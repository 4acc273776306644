"""The parts of bench/run: servers, loads, CPU accounting, cases, statistics and reports."""
