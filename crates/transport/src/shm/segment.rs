//! The job's one shared memory: header, a page of state per rank and per proxy, rings, arenas.
