-- KEYS: the value. ARGV: the eight bytes of the version that the writer saw, empty for none; the next version and the value; its
-- lifetime in milliseconds. Returns 1 if the value was stored, because its version had not changed.

if redis.call('GETRANGE', KEYS[1], 0, 7) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
