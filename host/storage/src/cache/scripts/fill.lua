-- KEYS: the record, its tombstone. ARGV: the record packed, milliseconds that it is kept.
-- Returns 1 if it was kept: no tombstone stands.

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
