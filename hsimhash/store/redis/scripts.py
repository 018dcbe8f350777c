"""The Lua scripts that Redis runs.

Redis runs each script as one step: readers never see part of its effects, and a kill never leaves part of them.

Invariants:

1. A fingerprint has a listed document if and only if it is in its bucket in every drawer. So the buckets of a listed
   fingerprint need not be read, and an unlisted fingerprint is appended to its buckets without a search.
2. If a register has fingerprint F and key K, the document is listed under F, and F is in the bucket of each part of K.
   In format 2, K has a single part.
3. A document that moves away from F or is removed stays listed under F, and is logged in `orphans` with the server's
   time. Once that is longer ago than any query can take, `collect` removes the listing, unless the register has F
   again. So a query that reads buckets, and then documents, never misses a document that moves in between: it finds the
   document under its old or new fingerprint.

Every script that writes receives a time on the server's clock after which it does nothing. So a call that its client no
longer waits for cannot overwrite the client's later writes.

It also does nothing if the index is not the one that its caller opened (GONE, ANEW), or if the server has lost the
caller's last acknowledged write (BACK). `writers` keeps the time of each caller's last acknowledged write.

A claim is an `ADD` that writes only if everything that its caller read is unchanged. The effect is the same as if the
caller had read everything in the step that writes. If near documents are claimed at the same time, exactly one is new:
every later caller finds that a bucket, a listing or a register has changed, and reads again.

In an index with a TTL, each register ends with the server time in ms at which it expires, and each insert renews that
time. Expired documents are not read, and are treated as new when they are added again; `FORGET` removes them.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

_NOW = """
local sub, call = string.sub, redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then return redis.error_reply('LATE the time for this call is over') end
local function is_over(register, ttl) return ttl > 0 and struct.unpack('>I8', sub(register, -8)) <= now end
"""

# For scripts that write. KEYS[1] is the record, and KEYS[2] is the identity. The first four ARGV of every write are:
# the time after which the script does nothing; the identity of the index that the caller opened (layout and profile if
# it does not have an identity); the caller's name; the time of its last acknowledged write in µs, or 0.
_SAME = """
local held = call('GET', KEYS[2])
if not held then
  local parts = call('HMGET', KEYS[1], 'layout', 'profile')
  held = (parts[1] or '') .. (parts[2] or '')
end
if held ~= ARGV[2] then return redis.error_reply(held == '' and 'GONE the index' or 'ANEW the index') end
"""

# For scripts whose writes are acknowledged. KEYS[3] is `writers`. `note` returns a table with the result and the time
# of the write, which the caller keeps.
_NOTED = """
local noted = tonumber(ARGV[4])
if noted > 0 and tonumber(call('ZSCORE', KEYS[3], ARGV[3]) or 0) < noted then
  return redis.error_reply('BACK the server')
end
local function note(result)
  noted = math.max(noted, time[1] * 1000000 + time[2])
  call('ZADD', KEYS[3], 'GT', noted, ARGV[3])
  return {result, noted}
end
"""

_BUCKETS = """
local function place(bucket, fp)
  local at = string.find(bucket, fp, 1, true)
  while at and at % 8 ~= 1 do at = string.find(bucket, fp, at + 1, true) end
  return at
end
local function file(key, fp)
  local bucket = call('GET', key)
  if not bucket or not place(bucket, fp) then call('APPEND', key, fp) return 1 end
  return 0
end
local function unfile(key, fp)
  local bucket = call('GET', key)
  local at = bucket and place(bucket, fp)
  if not at then return 0 end
  if #bucket == 8 then call('DEL', key) else call('SET', key, sub(bucket, 1, at - 1) .. sub(bucket, at + 8)) end
  return 1
end
local function each_of_key(first, count, work, fp)
  local done = 0
  for n = first, first + count - 1 do
    if KEYS[n] ~= KEYS[1] then done = done + work(KEYS[n], fp) end
  end
  return done
end
local function is_listed(key, fp)
  return #call('ZRANGEBYLEX', key, '[' .. fp, '(' .. fp .. '\\255', 'LIMIT', 0, 1) > 0
end
"""

# `DOCUMENTS` reads with this function, and `ADD` uses it to repeat what a claim read. `each` receives every id listed
# under a fingerprint, and its register from `register`. The keys of registers start with `head`.
_LISTING = """
local function each_listed(key, fp, after, most, head, register, each)
  local start = after == '' and '[' .. fp or '(' .. fp .. after
  local listed = redis.call('ZRANGEBYLEX', key, start, '(' .. fp .. '\\255', 'LIMIT', 0, most)
  for n = 1, #listed do
    local id = string.sub(listed[n], 9)
    each(n, id, register(head .. string.sub(redis.sha1hex(id), 1, 4), id))
  end
end
"""

# For scripts that read. ARGV[1] states whether registers may be expired.
_READ = """
local is_timed, now = ARGV[1] == '1', redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local function read(key, id)
  local value = redis.call('HGET', key, id)
  return not (value and is_timed and struct.unpack('>I8', string.sub(value, -8)) <= now) and value
end
"""

# For scripts that walk shards. `each` passes the existing shards to `work` in turn until `work` returns a number. It
# returns that number, or the end of the range. A single command checks whether any of 256 shards exists.
_SHARDS = """
local function listing(shard) return ARGV[1] .. string.char(math.floor(shard / 256), shard % 256) end
local function register(shard) return string.format('%s%04x', ARGV[#ARGV], shard) end
local function each(key_of, first, stop, work)
  for low = first, stop - 1, 256 do
    local keys = {}
    for shard = low, math.min(low + 256, stop) - 1 do keys[#keys + 1] = key_of(shard) end
    if redis.call('EXISTS', unpack(keys)) > 0 then
      for n = 1, #keys do
        local place = work(keys[n], low + n - 1)
        if place then return place end
      end
    end
  end
  return tonumber(stop)
end
"""


class Script(NamedTuple):
    """A script, and the name by which a server identifies it."""

    text: str
    sha: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


# KEYS: record, identity, writers, orphans; per document, its register, its listing, the buckets of the drawers, and the
# buckets of its key (padded with the record); per read, its key.
# ARGV: the usual four; the mark's field or '', its count, the number of drawers, the number of buckets per
# key, the TTL in ms or 0, the start of the keys of registers, the number of reads; per read, its kind, three arguments,
# and the SHA-1 of its result; per document, its id, and its register without the time of expiry.
# Returns how many documents changed, or -1 if a read now has a different result and nothing was written.
ADD = _script(
    _NOW
    + _SAME
    + _NOTED
    + _BUCKETS
    + _LISTING
    + """
local drawers, key_buckets, ttl = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ends = ttl > 0 and struct.pack('>I8', now + ttl) or ''
local function register(key, id)
  local value = call('HGET', key, id)
  return value and not is_over(value, ttl) and value or ''
end
local function listed(key, fp, after, most)
  local rows = {}
  each_listed(key, fp, after, most, ARGV[10], register, function(n, id, value)
    rows[n] = #id .. ':' .. id .. #value .. ':' .. value
  end)
  return table.concat(rows)
end
local read = {
  bucket = function(key) return call('GET', key) or '' end,
  field = function(key, name) return call('HGET', key, name) or '' end,
  register = register,
  listed = listed,
}
local reads, first = tonumber(ARGV[11]), 12 + 5 * ARGV[11]
for n = 1, reads do
  local a = 7 + 5 * n
  local found = read[ARGV[a]](KEYS[#KEYS - reads + n], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
  if redis.sha1hex(found) ~= ARGV[a + 4] then return -1 end
end
local changed, new, k = 0, 0, 5
for a = first, #ARGV, 2 do
  local id, value = ARGV[a], ARGV[a + 1]
  local fp, old = sub(value, 1, 8), call('HGET', KEYS[k], id)
  local is_same = old and sub(old, 1, 8) == fp and sub(old, 17, #value) == sub(value, 17) and not is_over(old, ttl)
  if not is_same then
    if old and (sub(old, 1, 8) ~= fp or sub(old, 25, 32) ~= sub(value, 25)) then
      call('ZADD', KEYS[4], now, sub(old, 1, 8) .. sub(old, 25, 32) .. id)
    end
    if not is_listed(KEYS[k + 1], fp) then
      for d = k + 2, k + 1 + drawers do call('APPEND', KEYS[d], fp) end
    end
    each_of_key(k + 2 + drawers, key_buckets, file, fp)
    call('ZADD', KEYS[k + 1], 0, fp .. id)
    call('HSET', KEYS[k], id, value .. ends)
    changed = changed + 1
    if not old then new = new + 1 end
  elseif ttl > 0 then
    call('HSET', KEYS[k], id, sub(old, 1, #value) .. ends)
  end
  k = k + 2 + drawers + key_buckets
end
if new > 0 then call('HINCRBY', KEYS[1], 'documents', new) end
if changed > 0 then call('HINCRBY', KEYS[1], 'changes', 1) end
if ARGV[5] ~= '' then call('HSET', KEYS[1], ARGV[5], ARGV[6]) end
return note(changed)
"""
)

# KEYS: record, identity, writers, orphans; per document, its register.
# ARGV: the usual four; the time before which documents must have been first seen or '', the TTL in ms or 0; per
# document, its id.
REMOVE = _script(
    _NOW
    + _SAME
    + _NOTED
    + """
local gone, over, before = 0, 0, tonumber(ARGV[5])
for a = 7, #ARGV do
  local key, id, seen = KEYS[a - 2], ARGV[a], 0
  local old = call('HGET', key, id)
  if old and before then for b = 9, 16 do seen = seen * 256 + string.byte(old, b) end end
  if old and (not before or seen < before) then
    call('HDEL', key, id)  -- first, because a full server accepts other writes only after one that frees memory
    call('ZADD', KEYS[4], now, sub(old, 1, 8) .. sub(old, 25, 32) .. id)
    gone = gone + 1
    if is_over(old, tonumber(ARGV[6])) then over = over + 1 end
  end
end
if gone == 0 then return 0 end
call('HINCRBY', KEYS[1], 'documents', -gone)
return note(gone - over)
"""
)

# KEYS: record, identity, orphans.
# ARGV: the usual four; the first shard of registers, the shard to stop before, the start of their keys.
# Removes expired documents from an index with a TTL.
FORGET = _script(
    _NOW
    + _SAME
    + _SHARDS
    + """
each(register, ARGV[5], ARGV[6], function(key)
  local rows = call('HGETALL', key)
  for n = 1, #rows, 2 do
    local id, old = rows[n], rows[n + 1]
    if is_over(old, 1) then
      call('HDEL', key, id)
      call('ZADD', KEYS[3], now, sub(old, 1, 8) .. sub(old, 25, 32) .. id)
      call('HINCRBY', KEYS[1], 'documents', -1)
    end
  end
end)
"""
)

# KEYS: record, identity, orphans; per orphan, its register, its listing, the buckets of the drawers, and the buckets of
# its key (padded with the record).
# ARGV: the usual four; the minimum age in ms, the number of drawers, the number of buckets per key; per
# orphan, its id and its entry.
COLLECT = _script(
    _NOW
    + _SAME
    + _BUCKETS
    + """
local oldest, drawers, key_buckets = now - tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local deleted, k = 0, 4
for a = 8, #ARGV, 2 do
  local id, orphan = ARGV[a], ARGV[a + 1]
  local score = call('ZSCORE', KEYS[3], orphan)
  if score and tonumber(score) <= oldest then
    local fp, held = sub(orphan, 1, 8), call('HGET', KEYS[k], id)
    if not held or sub(held, 1, 8) ~= fp then
      deleted = deleted + call('ZREM', KEYS[k + 1], fp .. id)
      if not is_listed(KEYS[k + 1], fp) then
        for d = k + 2, k + 1 + drawers do deleted = deleted + unfile(KEYS[d], fp) end
        deleted = deleted + each_of_key(k + 2 + drawers, key_buckets, unfile, fp)
      end
    end
    call('ZREM', KEYS[3], orphan)
  end
  k = k + 2 + drawers + key_buckets
end
return deleted
"""
)

# KEYS: record, identity, writers. ARGV: the usual four; an age in ms. Removes writers whose last write is
# older.
FORGET_WRITERS = _script(
    _NOW
    + _SAME
    + """
return call('ZREMRANGEBYSCORE', KEYS[3], '-inf', 1000 * (now - tonumber(ARGV[5])))
"""
)

# KEYS: record, identity, a register, its listing, the buckets of the drawers, the buckets of its key.
# ARGV: the usual four; the id, the register as it was read.
# Writes the listing and the rows that a register requires, unless the register has changed since it was read.
COMPLETE = _script(
    _NOW
    + _SAME
    + _BUCKETS
    + """
local id, value = ARGV[5], ARGV[6]
if call('HGET', KEYS[3], id) ~= value then return 0 end
local fp = sub(value, 1, 8)
call('ZADD', KEYS[4], 0, fp .. id)
for d = 5, #KEYS do file(KEYS[d], fp) end
return 1
"""
)

# KEYS: record, identity, a bucket, the listing of the fingerprint to remove from the bucket.
# ARGV: the usual four; the fingerprint, and whether to remove it even if it is listed.
UNFILE = _script(
    _NOW
    + _SAME
    + _BUCKETS
    + """
if ARGV[6] == '1' or not is_listed(KEYS[4], ARGV[5]) then return unfile(KEYS[3], ARGV[5]) end
return 0
"""
)

# KEYS: record, identity, orphans.
# ARGV: the usual four; a listing or '', the number to add to the record's count of documents.
# Logs a wrong listing as an orphan, and corrects the count.
CORRECT = _script(
    _NOW
    + _SAME
    + """
if ARGV[5] ~= '' then call('ZADD', KEYS[3], 'NX', now, ARGV[5]) end
if ARGV[6] ~= '0' then call('HINCRBY', KEYS[1], 'documents', ARGV[6]) end
return 1
"""
)

# KEYS: record, identity, the mark of a drop. ARGV: the usual four; fields and values of the record.
# Creates the index unless an index, or a part of an index, exists.
CREATE = _script(
    _NOW
    + """
if call('GET', KEYS[2]) == ARGV[2] then return 1 end  -- this call was sent before, and its reply was lost
if call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then return 0 end
call('SET', KEYS[2], ARGV[2])
call('HSET', KEYS[1], unpack(ARGV, 5))
return 1
"""
)

# KEYS: identity; keys of rows. Deletes the rows unless an index exists again; returns whether it deleted them.
DELETE = _script("""
if redis.call('EXISTS', KEYS[1]) > 0 then return 0 end
redis.call('UNLINK', unpack(KEYS, 2))
return 1
""")

# KEYS: per id, the hash that holds its register. ARGV: whether registers may be expired; the ids.
LOOKUP = _script(
    _READ
    + """
local found = {}
for k = 1, #KEYS do found[k] = read(KEYS[k], ARGV[k + 1]) end
return found
"""
)

# KEYS: per fingerprint, its listing. ARGV: whether registers may be expired, the start of the keys of registers; per
# fingerprint, the fingerprint, the id after which to start or '', and the maximum number of ids.
# Returns a list of alternating ids and registers per fingerprint. The script builds the keys of registers from the ids
# that it finds. This saves a round trip, and is possible because one server has all keys.
DOCUMENTS = _script(
    _READ
    + _LISTING
    + """
local found = {}
for k = 1, #KEYS do
  local rows = {}
  each_listed(KEYS[k], ARGV[3 * k], ARGV[3 * k + 1], ARGV[3 * k + 2], ARGV[2], read, function(n, id, value)
    rows[2 * n - 1] = id
    rows[2 * n] = value
  end)
  found[k] = rows
end
return found
"""
)

# KEYS: the identity, then buckets. ARGV: the number of bytes to read from each bucket. Returns the identity, and the
# first bytes of each bucket.
BEGINNINGS = _script("""
local found = {redis.call('GET', KEYS[1])}
for n = 2, #KEYS do found[n] = redis.call('GETRANGE', KEYS[n], 0, ARGV[1] - 1) end
return found
""")

# The last four scripts read a range of shards, one by one, until they have enough. They build the keys themselves.
# ARGV: the start of the keys of listings; the first shard, and the shard to stop before; the maximum number of results;
# where to start in the first listing. Returns the shard in which it stopped, and the contents of the listings.
LISTED = _script(
    _SHARDS
    + """
local found, most = {}, tonumber(ARGV[4])
local place = each(listing, ARGV[2], ARGV[3], function(key, shard)
  local start, left = shard == tonumber(ARGV[2]) and ARGV[5] or '-', most - #found
  local rows = redis.call('ZRANGEBYLEX', key, start, '+', 'LIMIT', 0, left)
  for n = 1, #rows do found[#found + 1] = rows[n] end
  if #rows == left then return shard end
end)
return {place, found}
"""
)

# ARGV: as for `LISTED`, without the last one. Returns the shard after the last one read, and distinct fingerprints.
FINGERPRINTS = _script(
    _SHARDS
    + """
local found, most = {}, tonumber(ARGV[4])
local place = each(listing, ARGV[2], ARGV[3], function(key, shard)
  local start, fp = '-', nil
  repeat
    local rows = redis.call('ZRANGEBYLEX', key, start, '+', 'LIMIT', 0, 100)
    for n = 1, #rows do
      local one = string.sub(rows[n], 1, 8)
      if one ~= fp then
        found[#found + 1] = one
        fp = one
      end
    end
    if fp then start = '(' .. fp .. '\\255' end
  until #rows < 100
  if #found >= most then return shard + 1 end
end)
return {place, table.concat(found)}
"""
)

# ARGV: as for `FINGERPRINTS`, then the start of the keys of registers. Returns the shard after the last one read, and
# the fingerprint of each register.
REGISTERED = _script(
    _SHARDS
    + """
local found, most = {}, tonumber(ARGV[4])
local place = each(register, ARGV[2], ARGV[3], function(key, shard)
  local rows = redis.call('HGETALL', key)
  for n = 2, #rows, 2 do
    if #rows[n] >= 8 then found[#found + 1] = string.sub(rows[n], 1, 8) end
  end
  if #found >= most then return shard + 1 end
end)
return {place, table.concat(found)}
"""
)

# ARGV: as for `REGISTERED`. Returns the shard after the last one read, the number of registers read, and the id and
# value of each register whose document is not listed under that register's fingerprint.
UNLISTED = _script(
    _SHARDS
    + """
local count, found, most = 0, {}, tonumber(ARGV[4])
local place = each(register, ARGV[2], ARGV[3], function(key, shard)
  local rows = redis.call('HGETALL', key)
  for n = 1, #rows, 2 do
    local id, value = rows[n], rows[n + 1]
    local fp = string.sub(value, 1, 8)
    count = count + 1
    if not redis.call('ZSCORE', ARGV[1] .. string.sub(fp, 1, 2), fp .. id) then
      found[#found + 1] = id
      found[#found + 1] = value
    end
  end
  if count >= most then return shard + 1 end
end)
return {place, count, found}
"""
)
