-- Returns the names of tasks whose leases have expired.
--
-- KEYS[1]  the working tasks, as described in `write.lua`
-- ARGV[1]  the maximum number of names

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
return redis.call(
  'ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
