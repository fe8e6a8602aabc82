-- A sliding window log: a sorted set with a member for each request, by its time.
-- KEYS: the set. ARGV: window in microseconds; limit; a unique member.
-- Returns 1 if the request may depart; or else 0, and records nothing.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
return 1
