-- Claims a task whose lease has expired.
--
-- KEYS[1]  the record, as described in `write.lua`
-- KEYS[2]  the working tasks
-- ARGV[1]  the name of the task in the sorted set
-- ARGV[2]  the new token
-- ARGV[3]  the duration of the new lease, in milliseconds
--
-- Returns {call, state}, or {} if the lease has not expired, for example because another replica
-- has claimed the task.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local token = redis.call('HGET', KEYS[1], 'token')
if not token then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return {}
end
-- The request is repeated if its response was lost.
if token ~= ARGV[2] then
  local expiry = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if not expiry or tonumber(expiry) > now then
    return {}
  end
  redis.call('HSET', KEYS[1], 'token', ARGV[2])
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), ARGV[1])
end
return redis.call('HMGET', KEYS[1], 'call', 'state')
