-- KEYS: the value. ARGV: the mark that its reader saw, empty for none; the value; milliseconds that it is kept.
-- Returns 1 if it was kept: it stands as its reader saw it.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
