-- KEYS: the record, its tombstone, its user's tombstone, the epoch. ARGV: the record packed, milliseconds that it is kept, the
-- number of the epoch in which its reader looked.
-- Returns 0 where a tombstone stands, 1 if it was kept, 2 if it was kept below a user's tombstone, 3 if the epoch is over.

local epoch = redis.call('GET', KEYS[4])
if not epoch or string.match(epoch, '^%d+') ~= ARGV[3] then
  return 3
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 2
end
return 1
