-- Caches a record. KEYS: the record, its tombstone, its user's tombstone, the epoch. ARGV: the packed record, its lifetime in
-- milliseconds, the number of the epoch in which the reader read the record.
-- The number of the epoch precedes the record: a record of an earlier epoch may have lost its tombstone.
-- Returns 0 if the record has a tombstone, 1 if it was stored, 2 if it was stored and its user has a tombstone, 3 if the epoch is over.

local epoch = redis.call('GET', KEYS[4])
if not epoch or string.match(epoch, '^%d+') ~= ARGV[3] then
  return 3
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. ARGV[1], 'PX', ARGV[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 2
end
return 1
