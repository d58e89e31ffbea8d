-- Times are nanoseconds of CLOCK_BOOTTIME as the host counts them; `boot` says of
-- which boot. `since` is the wall clock's microseconds, for people. Ids are 16 random bytes.

-- What keeps leases and entries alive. It ended when its row is gone, its boot
-- is not this one, or its time has passed; then it never comes back.
CREATE TABLE session (
  id       BLOB PRIMARY KEY,
  boot     TEXT NOT NULL,
  expires  INTEGER NOT NULL,
  ttl      INTEGER NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0, -- raised by whoever takes something from under it
  process  BLOB,                       -- names the liveness file; NULL: only time ends it
  device   INTEGER,                    -- of that file
  inode    INTEGER
) WITHOUT ROWID;
CREATE INDEX session_process ON session(process);

-- A name's row stays when the name is free: the last token lives here.
CREATE TABLE lease (
  name      TEXT PRIMARY KEY,
  token     INTEGER NOT NULL,
  owner     BLOB,                       -- NULL: free
  label     TEXT NOT NULL DEFAULT '',
  session   BLOB,
  since     INTEGER NOT NULL,
  ttl       INTEGER NOT NULL,
  one_shot  INTEGER NOT NULL,
  until     INTEGER,                    -- ends then, whatever its session does: handed over, or marked
  marked    INTEGER NOT NULL DEFAULT 0, -- revoked
  keep      INTEGER,                    -- hold_at_least
  keep_boot TEXT,
  lost      BLOB,                       -- the owner that last lost it to somebody, for it may still ask,
  revoked   INTEGER NOT NULL DEFAULT 0  -- and whether that was a revocation
) WITHOUT ROWID;
-- No index on session: it would double what a grant writes, and each client knows its claims.

-- The queues, in the order of seq.
CREATE TABLE entry (
  seq     INTEGER PRIMARY KEY,
  name    TEXT NOT NULL,
  owner   BLOB NOT NULL,
  label   TEXT NOT NULL,
  session BLOB NOT NULL,
  ttl     INTEGER NOT NULL,
  one_shot INTEGER NOT NULL,
  keep    INTEGER NOT NULL,             -- hold_at_least
  since   INTEGER NOT NULL
);
CREATE INDEX entry_name ON entry(name);
CREATE UNIQUE INDEX entry_owner ON entry(owner, name);
CREATE INDEX entry_session ON entry(session);

-- When idle rows are looked at next, by the wall clock, and from which name on.
CREATE TABLE tidy (due INTEGER NOT NULL, after TEXT NOT NULL);
INSERT INTO tidy VALUES (0, '');
