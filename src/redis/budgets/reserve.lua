-- Reserves an amount, as a lease.
--
-- ARGV[5]  the lease, `id:amount`
-- ARGV[6]  the amount; 0 if anything is left
-- ARGV[7]  how long the lease lasts, in microseconds
--
-- Gives {1, 0}, or {0, microseconds until it is worth to ask again, or -1}.

local lease, wanted = ARGV[5], tonumber(ARGV[6])

local function answer(...)
  save()
  return {...}
end

-- It is asked again, since the answer was lost.
if redis.call('ZSCORE', leases, lease) then
  return answer(1, 0)
end
-- Whoever asked has given up before this arrived, or is done: this is a copy that came
-- late.
if redis.call('ZSCORE', ended, lease) or redis.call('ZSCORE', ended, settled(lease)) then
  return answer(0, -1)
end

local missing = math.max(wanted, 1) - left()
if missing <= 0 then
  reserved = reserved + wanted
  redis.call('ZADD', leases, text(now + ARGV[7]), lease)
  return answer(1, 0)
end
-- What others hold is used in the end, or given back before.
if every > 0 and math.max(wanted, 1) <= limit then
  return answer(0, tick + math.ceil(missing / amount) * every - now)
end
return answer(0, -1)
