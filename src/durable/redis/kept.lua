-- Returns a stored value if it belongs to the given owner. Optionally marks the value as taken.
--
-- KEYS[1]  the SHA-256 digest of the owner, followed by the value; after the value was taken, the
--          digest is replaced by the ID of the request that took it
-- ARGV[1]  the SHA-256 digest of the owner
-- ARGV[2]  the ID of this request, `taken:` and random text, which is as long as the digest;
--          empty if the value is not taken
-- ARGV[3]  the maximum size in bytes of the digest and the value
-- ARGV[4]  how long the server keeps the value after it was taken, in milliseconds
--
-- Returns {0} if there is no value, {1} if it belongs to another owner, or {2, value}.

-- Another program that can write to the server may have stored a larger value.
if redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[3]) then
  return {0}
end
local owner = redis.call('GETRANGE', KEYS[1], 0, 31)
-- The request is repeated if its response was lost.
local is_again = owner ~= '' and owner == ARGV[2]
if owner == '' or (string.sub(owner, 1, 6) == 'taken:' and not is_again) then
  return {0}
end
-- The value of another owner is not taken.
if owner ~= ARGV[1] and not is_again then
  return {1}
end
local kept = redis.call('GETRANGE', KEYS[1], 32, -1)
if ARGV[2] ~= '' and not is_again then
  -- A full server may reject the write. In this case, the value is deleted.
  local written = redis.pcall('SETRANGE', KEYS[1], 0, ARGV[2])
  if type(written) == 'table' then
    redis.call('DEL', KEYS[1])
  elseif redis.call('PTTL', KEYS[1]) > tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
end
return {2, kept}
