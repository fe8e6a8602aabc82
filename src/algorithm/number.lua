-- A state that is one number, twin of number.rs: what spacing, the leaky bucket and GCRA have in common.
--
-- State: a decimal integer, a time in microseconds.

local number = { receipts = 1 }
number.__index = number

function number.load(methods, key, now, interval)
  return setmetatable({
    key = key, now = now, interval = interval, time = load_number(key, now), touched = false,
  }, methods)
end

function number:after(before, slot)
  return math.max(before, slot[2]) + self.interval * slot[3]
end

function number:take(slot)
  slot[#slot + 1] = self.time
  self.time = self:after(self.time, slot)
  self.touched = true
end

function number:is_last(slot, place)
  return slot[place] ~= nil and self:after(slot[place], slot) == self.time
end

function number:give_back(slot, place)
  if not self:is_last(slot, place) then return end
  self.time = slot[place]
  self.touched = true
end

function number:earliest(x)
  return math.max(x, self.time)
end

function number:remaining()
  return self.time <= self.now and 1 or 0
end

function number:last_record() return 0 end

function number:longest_wait() return HORIZON end

function number:expires() return self.time end

function number:save()
  if self.touched then save_number(self.key, self.time, self.now) end
end

local function counted_by_number()
  local methods = setmetatable({}, number)
  methods.__index = methods
  return methods
end
