-- Since when the store knows of everything: written by whoever first finds that nobody has, or that the clock
-- was set back since. The last of the keys.
local born = tonumber(redis.call('GET', KEYS[#KEYS]) or '')
if not born or born > now then
  born = now
  redis.call('PSETEX', KEYS[#KEYS], string.format('%.0f', HORIZON / 1000), string.format('%.0f', now))
end

