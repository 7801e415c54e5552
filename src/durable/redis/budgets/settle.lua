-- Ends a lease, and charges the amount that was actually used. Repeating this has no effect.
--
-- ARGV[5]  the lease, `id:amount`
-- ARGV[6]  the amount that was actually used
-- ARGV[7]  1 if the server may still receive the reservation, or a copy of it
-- ARGV[8]  the maximum used amount of a budget with refills

local lease, actual = ARGV[5], tonumber(ARGV[6])

if redis.call('ZREM', leases, lease) == 1 then
  reserved = math.max(0, reserved - tonumber(string.match(lease, ':(%d+)$')))
  used = used + actual
elseif redis.call('ZREM', ended, lease) == 1 then
  used = used + actual
end
if every > 0 then
  used = math.min(used, tonumber(ARGV[8]))
end
if ARGV[7] == '1' then
  -- The reservation may still arrive from a lost connection. It is rejected for one minute.
  redis.call('ZADD', ended, text(now + 60000000), settled(lease))
end
save()
