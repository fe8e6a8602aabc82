-- Fixed windows, twin of fixed_window.rs.
--
-- State: 7 bytes, where the last window begins in which anything departs; 4 bytes, how much does;
-- and, if it is longer than a window is, 7 bytes, where it ends.

local fixed_window = { receipts = 3, minds_late = true }
fixed_window.__index = fixed_window

function fixed_window.load(key, now, limit, length, aligned)
  local self = setmetatable({
    key = key, now = now, limit = limit, length = length, aligned = aligned == 1,
    start = 0, stop = 0, count = 0, touched = false,
  }, fixed_window)
  local raw = redis.call('GET', key)
  if raw then
    if #raw ~= 11 and #raw ~= 18 then refuse(key) end
    local start, count = struct.unpack('<I7I4', raw)
    self.start, self.stop, self.count = start, start + length, count
    if #raw == 18 then self.stop = struct.unpack('<I7', raw, 12) end
    check(start, key, now)
    if self.stop < start then refuse(key) end
    check(self.stop, key, now)
  end
  return self
end

function fixed_window:earliest(x, late, cost)
  local has_to_fit = late <= self.length / 2
  x = math.max(x, self.start)
  if x < self.stop then
    local has_room = self.count + cost <= self.limit
    if has_room and not (has_to_fit and x + late >= self.stop) then return x end
    x = self.stop
  end
  if self.aligned and has_to_fit then
    local stop = x - x % self.length + self.length
    if x + late >= stop then return stop end
  end
  return x
end

-- Where a window ends at the earliest in which something is recorded at `record`.
function fixed_window:end_of(record)
  if not self.aligned then return record + 1 end
  return record - record % self.length + self.length
end

-- The window after this departure: where it begins and ends, and how much departs.
function fixed_window:after(start, stop, count, slot)
  local at, record, cost = slot[1], slot[2], slot[3]
  if at < stop then return start, math.max(stop, self:end_of(record)), count + cost end
  start = at
  if self.aligned then start = at - at % self.length end
  return start, math.max(start + self.length, self:end_of(record)), cost
end

function fixed_window:take(slot)
  local size = #slot
  slot[size + 1], slot[size + 2], slot[size + 3] = self.start, self.stop, self.count
  self.start, self.stop, self.count = self:after(self.start, self.stop, self.count, slot)
  self.touched = true
end

-- Whether this departure came to the window when others were in it.
function fixed_window:has_joined(slot, place)
  return slot[place] == self.start and slot[1] < slot[place + 1]
end

-- Whether this departure opened the window, and nothing else is in it.
function fixed_window:is_alone(slot, place)
  if slot[place + 2] == nil or slot[1] < slot[place + 1] then return false end
  local start, stop, count = self:after(slot[place], slot[place + 1], slot[place + 2], slot)
  return start == self.start and stop == self.stop and count == self.count
end

function fixed_window:is_last(slot, place)
  if slot[place + 2] == nil then return false end
  return self:has_joined(slot, place) or self:is_alone(slot, place)
end

function fixed_window:give_back(slot, place)
  if self:is_alone(slot, place) then
    self.start, self.stop, self.count = slot[place], slot[place + 1], slot[place + 2]
    self.touched = true
  elseif slot[1] >= self.start and slot[1] < self.stop then
    self.count = math.max(self.count - slot[3], 0)
    if self.count == 0 then self.stop = self.start end
    self.touched = true
  end
end

function fixed_window:last_record() return 0 end

function fixed_window:longest_wait() return HORIZON end

function fixed_window:remaining(late)
  if self:earliest(self.now, late, 1) > self.now then return 0 end
  if self.now >= self.stop then return self.limit end
  return math.max(self.limit - self.count, 0)
end

function fixed_window:expires()
  return self.stop
end

function fixed_window:save()
  if not self.touched then return end
  if self.stop == 0 then
    redis.call('DEL', self.key)
    return
  end
  local raw = struct.pack('<I7I4', self.start, self.count)
  if self.stop ~= self.start + self.length then raw = raw .. struct.pack('<I7', self.stop) end
  redis.call('PSETEX', self.key, lifetime(self:expires(), self.now), raw)
end

algorithms.fixed = fixed_window
