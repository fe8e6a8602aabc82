-- What an upstream has said, twin of hold.rs.
--
-- State, ahead of the free slots: a byte; then for a pause and for an allowance until when it holds, since
-- when, and what is left of it, in numbers of 8 bytes; all zero where there is none. The byte makes the
-- length odd: without a hold, there is nothing ahead of the free slots.

local HOLDS = 49

local hold = { receipts = 0 }
hold.__index = hold

-- By kind: pause, allowance.
local holds

-- Reads what stands in the value of this name, if there is one; returns what is behind the holds.
function hold.load(raw, key, now)
  holds = { touched = false }
  if not raw then return '' end
  if raw == '' then refuse(key) end
  if #raw % 8 ~= 1 then return raw end
  if #raw < HOLDS or string.byte(raw) ~= 1 then refuse(key) end
  local numbers = { struct.unpack('<xI8I8I8I8I8I8', raw) }
  for i, kind in ipairs({ 'pause', 'allowance' }) do
    local stop, since, left = numbers[3 * i - 2], numbers[3 * i - 1], numbers[3 * i]
    check(stop, key, now)
    check(since, key, now)
    if left >= 2 ^ 32 then refuse(key) end
    if stop > now then hold.set(kind, stop, since, left) end
    if stop > 0 and stop <= now then holds.touched = true end
  end
  return string.sub(raw, HOLDS + 1)
end

function hold.set(kind, stop, since, left)
  holds[kind] = setmetatable({ stop = stop, since = since, left = left }, hold)
end

function hold.packed()
  if not holds.pause and not holds.allowance then return '' end
  local none = { stop = 0, since = 0, left = 0 }
  local pause, allowance = holds.pause or none, holds.allowance or none
  return struct.pack('<BI8I8I8I8I8I8', 1, pause.stop, pause.since, pause.left, allowance.stop,
    allowance.since, allowance.left)
end

function hold:earliest(x, _, cost)
  if x < self.stop and self.left < cost then return self.stop end
  return x
end

function hold:alike(at, cost, count)
  if at >= self.stop then return count end
  return math.min(count, math.floor(self.left / cost))
end

function hold:take(slot, taken)
  if slot[1] >= self.stop or self.left == 0 then return end
  self.left = math.max(self.left - slot[3] * taken, 0)
  holds.touched = true
end

function hold:is_last() return true end

-- What has been given back may have been handed out before the upstream spoke: so it stays gone.
function hold:give_back() end

function hold:give_back_all() end

function hold:longest_wait() return HORIZON end

function hold:remaining()
  return self.left
end

function hold:last_record() return 0 end

function hold:expires() return self.stop end

function hold:save() end
