"""What others may see of an attack: their p99 at most doubles, or grows by at most 2 ms where the quiet one is below 2 ms."""

RATIO, MS = 2.0, 2.0


def is_kept(quiet_ms, attacked_ms):
    return attacked_ms <= RATIO * quiet_ms or (quiet_ms < MS and attacked_ms <= quiet_ms + MS)
