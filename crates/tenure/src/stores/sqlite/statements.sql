-- In all of them ?1 is the name, the session or what else is asked about, ?20 is now
-- and ?21 this boot. The code asks for a statement by its heading.

-- @lease
SELECT l.name, l.token, l.owner, l.label, l.since, l.until, l.marked,
       CASE WHEN l.keep_boot = ?21 THEN l.keep END, l.lost, l.revoked, l.session, l.ttl, l.one_shot,
       s.expires, s.process, s.device, s.inode, EXISTS (SELECT 1 FROM entry e WHERE e.name = ?1)
  FROM lease l LEFT JOIN session s ON s.id = l.session AND s.boot = ?21
 WHERE l.name = ?1
-- @put
INSERT INTO lease(name, token, owner, label, session, since, ttl, one_shot, until, keep, keep_boot)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?21)
    ON CONFLICT(name) DO UPDATE SET token = excluded.token, owner = excluded.owner, label = excluded.label,
       session = excluded.session, since = excluded.since, ttl = excluded.ttl, one_shot = excluded.one_shot,
       until = excluded.until, marked = 0, keep = excluded.keep, keep_boot = excluded.keep_boot,
       lost = coalesce(?11, lost), revoked = iif(?11 IS NULL, revoked, ?12)
-- Grants a name that is plainly free, on a session that is plainly as it is known.
-- @take
UPDATE lease SET token = ?2, owner = ?3, label = ?4, session = ?5, since = ?2, ttl = ?6, one_shot = 0,
       until = NULL, marked = 0, keep = NULL
 WHERE name = ?1 AND owner IS NULL AND token < ?2 AND (keep IS NULL OR keep_boot <> ?21 OR keep <= ?20)
   AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.name = ?1)
   AND EXISTS (SELECT 1 FROM session WHERE id = ?5 AND boot = ?21 AND expires > ?20 AND revision = ?7)
-- @free
UPDATE lease SET owner = NULL, label = '', session = NULL, until = NULL, marked = 0,
       keep = iif(?2, keep, NULL), lost = coalesce(?3, lost), revoked = iif(?3 IS NULL, revoked, ?4)
 WHERE name = ?1
-- What plainly hangs on this session is free, and nobody waits for it.
-- @give_up
UPDATE lease SET owner = NULL, label = '', session = NULL, keep = iif(?4, keep, NULL)
 WHERE name = ?1 AND owner = ?2 AND session = ?3 AND until IS NULL AND NOT marked
   AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.name = ?1)
   AND EXISTS (SELECT 1 FROM session WHERE id = ?3 AND boot = ?21 AND expires > ?20)
-- @move
UPDATE lease SET session = ?2, ttl = ?3, until = NULL WHERE name = ?1
-- @mark
UPDATE lease SET marked = 1, until = ?2, keep = NULL WHERE name = ?1
-- @stands
SELECT owner IS ?2 AND session IS ?3 AND NOT marked FROM lease WHERE name = ?1

-- @open
INSERT INTO session(id, boot, expires, ttl, process, device, inode) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
-- @alive
SELECT revision FROM session WHERE id = ?1 AND boot = ?21 AND expires > ?20
-- @beat
UPDATE session SET expires = ?20 + ?2, ttl = ?2 WHERE id = ?1 AND boot = ?21 AND expires > ?20 RETURNING revision
-- @raise
UPDATE session SET revision = revision + 1 WHERE id = ?1
-- @end
DELETE FROM session WHERE id = ?1
-- @end_process
DELETE FROM session WHERE process = ?1 AND device = ?2 AND inode = ?3

-- @enqueue
INSERT INTO entry(name, owner, label, session, ttl, one_shot, keep, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
-- @leave
DELETE FROM entry WHERE owner = ?2 AND name = ?1
-- @head
SELECT e.owner, e.label, e.session, e.ttl, e.keep, e.one_shot, s.expires, s.process, s.device, s.inode
  FROM entry e LEFT JOIN session s ON s.id = e.session AND s.boot = ?21
 WHERE e.name = ?1 ORDER BY e.seq LIMIT 1
-- @first_live
SELECT e.owner FROM entry e JOIN session s ON s.id = e.session
 WHERE e.name = ?1 AND s.boot = ?21 AND s.expires > ?20 ORDER BY e.seq LIMIT 1
-- @places
SELECT (SELECT count(*) FROM entry WHERE name = ?1), (SELECT count(*) FROM entry WHERE name = ?1 AND seq <= mine.seq)
  FROM (SELECT 1) LEFT JOIN
       (SELECT e.seq FROM entry e JOIN session s ON s.id = e.session
         WHERE e.owner = ?2 AND e.name = ?1 AND s.boot = ?21 AND s.expires > ?20) AS mine
-- @length
SELECT count(*) FROM entry WHERE name = ?1
-- @dead_entries
DELETE FROM entry WHERE name = ?1
   AND session NOT IN (SELECT id FROM session WHERE boot = ?21 AND expires > ?20)
-- @waiters
SELECT e.owner, e.label, e.since FROM entry e JOIN session s ON s.id = e.session
 WHERE e.name = ?1 AND s.boot = ?21 AND s.expires > ?20 ORDER BY e.seq LIMIT 1000

-- @list
SELECT l.name, l.token, l.owner, l.label, l.since, l.until, l.marked,
       CASE WHEN l.keep_boot = ?21 THEN l.keep END, l.lost, l.revoked, l.session, l.ttl, l.one_shot,
       s.expires, s.process, s.device, s.inode,
       (SELECT count(*) FROM entry e JOIN session w ON w.id = e.session
         WHERE e.name = l.name AND w.boot = ?21 AND w.expires > ?20)
  FROM lease l LEFT JOIN session s ON s.id = l.session AND s.boot = ?21
 WHERE l.name >= ?1 AND l.name > ?2 ORDER BY l.name

-- @dead_sessions
DELETE FROM session WHERE boot <> ?21 OR expires <= ?20
-- @orphaned_entries
DELETE FROM entry WHERE session NOT IN (SELECT id FROM session)
-- @tidy
SELECT due, after FROM tidy
-- @tidied
UPDATE tidy SET due = ?1, after = ?2
-- @next_names
SELECT max(name), count(*) FROM (SELECT name FROM lease WHERE name > ?1 ORDER BY name LIMIT 1000)
-- @forget
DELETE FROM lease WHERE name > ?1 AND name <= ?2 AND token <= ?3
   AND (keep IS NULL OR keep_boot <> ?21 OR keep <= ?20)
   AND (session IS NULL OR session NOT IN (SELECT id FROM session WHERE boot = ?21 AND expires > ?20))
   AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.name = lease.name)

-- @counts
SELECT (SELECT count(*) FROM lease WHERE session IN (SELECT id FROM session WHERE boot = ?21 AND expires > ?20)),
       (SELECT count(*) FROM lease),
       (SELECT count(*) FROM entry WHERE session IN (SELECT id FROM session WHERE boot = ?21 AND expires > ?20)),
       (SELECT count(*) FROM session WHERE boot = ?21 AND expires > ?20)
