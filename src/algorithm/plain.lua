-- Most calls: all requests have one cost and may depart at once, no other process waits, and the tail has nothing but
-- announcements and logs. Answers as the rest of the script would, in half of the time. Keys for which more matters get
-- no answer here. Only if there is one unit.

if operation < 2 and special == 0 and names == '' and not has_share then
  local format, answered = string.format, 0
  local record = now + round_trip + hold
  --@terms
  local late = 2 * round_trip
  local deadline = now + (late > 20000 and late or 20000)
  for nth = 1, #ARGV - 1 do repeat
    local arg, key = ARGV[nth + 1], KEYS[nth]
    local number, _, cost, count = unpack('<I7I7I4B', arg)
    if count == 0 or cost == 0 or number == 0 then break end
    local units = unpack('<I7', arg, count * 14 + 15)
    local requests = units / cost
    if requests % 1 > 0 or units > 4294967295 then break end
    local raw = redis.pcall('GET', key) --whole
    local raw = redis.pcall('GETRANGE', key, 0, @head - 1) --ring
    local announced, size, expires, front = 0, 0, 0
    if not raw then --whole
      raw = '' --whole
    elseif type(raw) == 'table' or #raw < @head then --whole
    if type(raw) == 'table' or #raw < @head then --ring
      break
    else
      front, announced, size, expires = unpack('<c5I2I4I7', raw)
      if front ~= 'tt\1\0\@quotas' then break end
    end
    local tail, at, rings, logs = raw, @head + 1, @head, 0
    --@load
    if raw ~= '' and #raw ~= size + @head then break end --whole
    tail, at = size > 0 and call('GETRANGE', key, rings, rings + size - 1) or '', 1 --ring
    if #tail ~= size then break end --ring
    local rest, from, others, latest = '', at, 1, deadline
    for _ = 1, announced do
      local who, ends, _, _, waits, bytes, before = unpack('<I7I7I7I7I7I2I7', tail, at)
      local next, is_kept = at + 37 + bytes, ends + 10000000 > now
      if who == process then
        if is_kept and before >= number then break end
        is_kept = false
      end
      if is_kept then
        if waits > 0 and ends + 250000 >= now then break end
        others = others + 1
        if ends > latest then latest = ends end
      else
        if at > from then rest = rest .. sub(tail, from, at - 1) end
        from = next
      end
      at, announced = next, announced - 1
    end
    if announced > 0 or raw ~= '' and at ~= #tail + 1 - logs then break end
    if at > from then rest = rest .. sub(tail, from, at - 1) end
    local remaining, reset, finish = 4294967295, 0, latest + 10000000
    --@room
    --@record
    if reset > finish then finish = reset end
    if remaining < 0 then remaining = 0 end
    remaining = remaining - remaining % 1
    local mine = pack('<I7I7I7I7I7I2I7I4BI7I4', process, deadline, 0, 0, 0, 23, number, operation == 0 and cost or 0, 0, record, units)
    local logs = @logs
    size = #rest + #mine + #logs
    local is_late = finish > expires
    if is_late then expires = finish + (finish - now - (finish - now) % 4) / 4 end
    local front = pack('<c5I2I4I7@formats', 'tt\1\0\@quotas', others, size, expires, @numbers)
    local life = is_late and format('%d', (expires - now) / 1000 + 1)
    local value = front .. rest .. mine .. logs --whole
    if is_late or #value ~= #raw then --whole
      call('SET', key, value, 'PX', life or format('%d', (expires - now) / 1000 + 1)) --whole
    else --whole
      call('SETRANGE', key, 0, value) --whole
    end --whole
    call('SETRANGE', key, 0, front) --ring
    call('SETRANGE', key, rings, rest .. mine .. logs) --ring
    if is_late then call('PEXPIRE', key, life) end --ring
    answered = answered + 1
    answers[nth] = pack('<BI7I4I7I7BI2I7I7I4', 0, now, remaining, reset, 0, 0, 1, now, record, requests)
  until true end
  if answered == #ARGV - 1 then return answers end
end
