-- KEYS: the record, its tombstone. ARGV: the record packed, milliseconds that it is kept.
-- Returns 1 if it was kept: nothing stood there.

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
