-- Creates or changes the record of a task.
--
-- KEYS[1]  the record, a hash with the fields `token`, `call`, `state` and `checkpoint`
-- KEYS[2]  the working tasks, a sorted set with the expiry times of their leases
-- KEYS[3]  the unfinished tasks, a sorted set with the expiry times of their records
-- KEYS[4]  the ended tasks, likewise
-- KEYS[5]  the unfinished tasks of the caller, likewise; missing if there is no limit per caller
-- ARGV[1]  the name of the task in the sorted sets
-- ARGV[2]  the expected token; empty to create the record
-- ARGV[3]  the new token
-- ARGV[4]  the phase: `working`, `waiting` or `ended`
-- ARGV[5]  the duration of the lease, in milliseconds
-- ARGV[6]  the time to live of the record, in milliseconds
-- ARGV[7]  the maximum size of a record, in bytes
-- ARGV[8]  the maximum number of unfinished tasks
-- ARGV[9]  the maximum number of tasks
-- ARGV[10] the maximum number of unfinished tasks of the caller
-- ARGV[11] and so on: the fields to set, each followed by its value
--
-- Returns `ok`, or the reason why nothing was written: `lost`, `large`, `unfinished`, `full` or
-- `caller`. All times are those of the server's clock, in milliseconds.

local record, name, expected, token, phase = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function text(number)
  return string.format('%.0f', number)
end

local function add(set, expiry)
  redis.call('ZADD', set, text(expiry), name)
  -- The key must not expire before any of its tasks. Tasks have different lifetimes.
  redis.call('PEXPIRE', set, text(math.max(ttl, redis.call('PTTL', set))))
end

-- Returns the number of tasks in a set, without those whose records have expired.
local function count(set)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', text(now))
  return redis.call('ZCARD', set)
end

local current = redis.call('HGET', record, 'token')
if expected == '' then
  if current then
    -- The request is repeated if its response was lost.
    return current == token and 'ok' or 'lost'
  end
  local unfinished = count(KEYS[3])
  if unfinished >= tonumber(ARGV[8]) then
    return 'unfinished'
  elseif unfinished + count(KEYS[4]) >= tonumber(ARGV[9]) then
    return 'full'
  elseif KEYS[5] and count(KEYS[5]) >= tonumber(ARGV[10]) then
    return 'caller'
  end
elseif not current or (current ~= expected and current ~= token) then
  return 'lost'
end

local sizes = {}
for _, field in ipairs({'call', 'state', 'checkpoint'}) do
  sizes[field] = redis.call('HSTRLEN', record, field)
end
local fields = {'token', token}
for i = 11, #ARGV, 2 do
  sizes[ARGV[i]] = #ARGV[i + 1]
  table.insert(fields, ARGV[i])
  table.insert(fields, ARGV[i + 1])
end
if phase == 'ended' then
  sizes.checkpoint = 0
end
if sizes.call + sizes.state + sizes.checkpoint > tonumber(ARGV[7]) then
  return 'large'
end

redis.call('HSET', record, unpack(fields))
redis.call('PEXPIRE', record, text(ttl))
if phase == 'working' then
  add(KEYS[2], now + lease)
else
  redis.call('ZREM', KEYS[2], name)
end
if phase == 'ended' then
  redis.call('HDEL', record, 'checkpoint')
  add(KEYS[4], now + ttl)
end
for _, set in ipairs({KEYS[3], KEYS[5]}) do
  if phase == 'ended' then
    redis.call('ZREM', set, name)
  else
    add(set, now + ttl)
  end
end
return 'ok'
