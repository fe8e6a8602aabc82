-- A sliding window of rounded times: a hash with a count for each time.
-- KEYS: the hash. ARGV: window and resolution in microseconds; limit.
-- Returns 1 if the request may depart; or else 0, and records nothing.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local over, count = {}, 0
local counts = redis.call('HGETALL', KEYS[1])
for i = 1, #counts, 2 do
  if now - counts[i] >= tonumber(ARGV[1]) then
    over[#over + 1] = counts[i]
  else
    count = count + counts[i + 1]
  end
end
if #over > 0 then redis.call('HDEL', KEYS[1], unpack(over)) end
if count >= tonumber(ARGV[3]) then return 0 end
redis.call('HINCRBY', KEYS[1], now - now % ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
return 1
