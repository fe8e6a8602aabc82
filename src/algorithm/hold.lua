-- What an upstream has said, and which life of the key it is: twin of hold.rs and ledger/life.rs.
--
-- State, ahead of the free slots: a byte, 1 if anything was said, 2 if there is a life, or 3; then, in numbers of
-- 8 bytes, if anything was said, for a pause and for an allowance until when it holds, since when, and what is
-- left of it, all zero where there is none; and of a life when it began, its version, until when the key rests or
-- did, for how long to remember all this, 1 if all were told of it, how many marks there are, for each quota until
-- when its state counts, and the marks: a process, and at which version slots were last handed out to it. The byte
-- makes the length odd: without a hold or a life, there is nothing ahead of the free slots.

local hold = { receipts = 0 }
hold.__index = hold

-- By kind: rest, pause, allowance; and the life.
local holds

-- Of how many processes it is remembered what they were told last.
local MARKS = 8

-- Reads what stands in the value of this name, if there is one, of a key with so many quotas; returns what is
-- behind.
function hold.load(raw, key, now, quotas)
  holds = { touched = false }
  if not raw then return '' end
  if raw == '' then refuse(key) end
  if #raw % 8 ~= 1 then return raw end
  local has, place = string.byte(raw), 2
  if has < 1 or has > 3 then refuse(key) end
  local function take(count)
    if place + 8 * count > #raw + 1 then refuse(key) end
    local numbers = { struct.unpack('<' .. string.rep('I8', count), raw, place) }
    place = table.remove(numbers)
    return numbers
  end
  if has % 2 == 1 then
    local numbers = take(6)
    for i, kind in ipairs({ 'pause', 'allowance' }) do
      local stop, since, left = numbers[3 * i - 2], numbers[3 * i - 1], numbers[3 * i]
      check(stop, key, now)
      check(since, key, now)
      if left >= 2 ^ 32 then refuse(key) end
      if stop > now then hold.set(kind, stop, since, left) end
      if stop > 0 and stop <= now then holds.touched = true end
    end
  end
  if has >= 2 then
    local numbers = take(6 + quotas)
    for i = 1, 6 + quotas do check(numbers[i], key, now) end
    local life = { start = numbers[1], version = numbers[2], rest = numbers[3], keep = numbers[4], counts = {} }
    life.is_told = numbers[5] > 0
    if numbers[6] > MARKS then refuse(key) end
    for i = 1, quotas do life.counts[i] = numbers[6 + i] end
    life.marks = take(2 * numbers[6])
    for i = 1, #life.marks, 2 do
      if life.marks[i] >= 2 ^ 32 then refuse(key) end
      check(life.marks[i + 1], key, now)
    end
    if life.rest > now then hold.set('rest', life.rest, life.start, 0) end
    if life.keep >= now then holds.life = life else holds.touched = true end
  end
  return string.sub(raw, place)
end

function hold.set(kind, stop, since, left)
  holds[kind] = setmetatable({ stop = stop, since = since, left = left }, hold)
end

-- Of quotas that count until then.
function hold.packed(counters, quotas)
  local has, numbers, life = 0, {}, holds.life
  if holds.pause or holds.allowance then
    local none = { stop = 0, since = 0, left = 0 }
    local pause, allowance = holds.pause or none, holds.allowance or none
    has = 1
    numbers = { pause.stop, pause.since, pause.left, allowance.stop, allowance.since, allowance.left }
  end
  if life then
    has = has + 2
    local told, marks = life.is_told and 1 or 0, #life.marks / 2
    for _, number in ipairs({ life.start, life.version, life.rest, life.keep, told, marks }) do
      numbers[#numbers + 1] = number
    end
    -- What is gone is missed until somebody notices who minds.
    for i = 1, quotas do numbers[#numbers + 1] = math.max(counters[i]:expires(), life.counts[i]) end
    for i = 1, #life.marks do numbers[#numbers + 1] = life.marks[i] end
  end
  return has > 0 and struct.pack('<B' .. string.rep('I8', #numbers), has, unpack(numbers)) or ''
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
