-- Heeds what is said of one key, and tells all who listen if that concerns slots that are held.
--
-- KEYS     what stands aside, then the state of each quota
-- ARGV     the quotas, for each the name of its algorithm and three numbers; the word, a byte and two numbers
--          of 8 bytes: 0 none; 1 a pause, its span, when the request departed that was answered so; 2 an
--          allowance, its span, how much; 3 resume; 4 a quarantine, its span, when the life began that is lost;
--          then the channel, and whom it is about
-- Returns  the server's time, since and until when slots are void, until when there is a pause

--@ledger
--@quotas
ledger.load({ unpack(KEYS, 2) }, KEYS[1], quotas, now)
local word, span, number = struct.unpack('<BI8I8', ARGV[2])
local since, stop, paused = ledger.heed(word, span, number)
if word > 0 then
  if stop > 0 then
    local message = struct.pack('<I8I8I8I8', now, since, stop, paused) .. ARGV[4]
    local told = redis.pcall('PUBLISH', ARGV[3], message)
    -- Who may not publish is heeded all the same, but where all have to be told.
    if word == 4 then
      if type(told) == 'table' then
        return redis.error_reply('NOPERM that a state was lost is told by PUBLISH: ' .. told.err)
      end
      holds.life.is_told = true
    end
  end
  ledger.save()
end
return { now, since, stop, paused }
