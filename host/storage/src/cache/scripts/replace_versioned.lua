-- KEYS: the value. ARGV: the eight bytes of the version that its writer saw, empty for none; the next version and the value;
-- milliseconds that it is kept. Returns 1 if it was written: it stands as its writer saw it.

if redis.call('GETRANGE', KEYS[1], 0, 7) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
