-- Extends or releases the lease of a working task.
--
-- KEYS[1]  the record, as described in `write.lua`
-- KEYS[2]  the working tasks
-- ARGV[1]  the name of the task in the sorted set
-- ARGV[2]  the token of the lease
-- ARGV[3]  the time after which the lease expires, in milliseconds
--
-- Returns 1, or 0 if the lease is lost.

if redis.call('HGET', KEYS[1], 'token') ~= ARGV[2]
  or not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return 0
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), ARGV[1])
return 1
