-- Limits of how many requests are in progress; see concurrent.rs.
local load$, earliest$, fits$, take$, settle$, ends$, clear$, write$
do
  local prefix = sub(head, @terms, @terms + 11)
  local limit, lease = unpack('<I4I7', head, @terms + 1)
  if lease > common.memory then common.memory = lease end
  -- Where the holders are in the tail, their number, and the units of all; the units and the number of the call of this process;
  -- true if another lane of this process holds places.
  local list, count, used, own, own_number, is_here
  -- The entries of the other processes, and the first and the last end of their leases.
  local entries, first_end, last_end

  function load$()
    count, used, own, entries, first_end, last_end = 0, 0, 0, {}, nil, 0
    -- The lease may differ.
    if common.has_quota(@value, sub(prefix, 1, 5)) then count = unpack('<I2', raw, @value + 12) end
    list, logs = logs, logs + count * 25
  end

  -- Forgets places whose leases have ended, and takes over what this process holds. Returns true if a later call of it has
  -- arrived already. To be called first.
  function places.report(number, held)
    list = list + #raw - logs + 1
    local before, processes = 0, {}
    places.reclaimed, places.released, places.holders, own_number = 0, 0, 0, number
    for i = 0, count - 1 do
      local who, ends, called, units = unpack('<I7I7I7I4', raw, list + i * 25)
      if ends <= now then
        places.reclaimed = places.reclaimed + units
      elseif who == process and operation < 2 then
        if number ~= 0 and called >= number then return true end
        before = units
      else
        entries[#entries + 1] = sub(raw, list + i * 25, list + i * 25 + 24)
        used = used + units
        if not first_end or ends < first_end then first_end = ends end
        if ends > last_end then last_end = ends end
        local host = who - who % @LANE
        if not processes[host] then processes[host], places.holders = true, places.holders + 1 end
      end
    end
    is_here = processes[process - process % @LANE]
    if operation < 2 then
      own, used = held, used + held
      if before > own then places.released = before - own end
    end
  end

  function earliest$(from, ahead, cost)
    if cost == 0 or used + ahead + cost <= limit then return from end
    return beyond > from and beyond or from
  end

  function fits$(_, cost)
    local count = (limit - used) / cost
    return count - count % 1
  end

  function take$(_, _, units)
    own, used = own + units, used + units
  end

  -- Processes report what they hold.
  function settle$() end

  -- When this process has to look for a place, if there is none for a request behind so many units.
  function places.look(ahead, cost, time)
    if cost == 0 or used + ahead + cost <= limit then return end
    return first_end and first_end < time and first_end or time
  end

  function places.free()
    return limit > used and limit - used or 0
  end

  function places.occupancy()
    local most = used < 4294967295 and used or 4294967295
    return pack('<I4I4I4', most, places.holders + (own > 0 and not is_here and 1 or 0), places.reclaimed)
  end

  -- When the counter expires, and when all units are available again.
  function ends$()
    local own_end = own > 0 and now + lease or 0
    return own_end > last_end and own_end or last_end, 0
  end

  function common.latest$() return 0 end

  -- Requests in progress go on.
  function clear$() end

  function write$()
    if own > 0 then entries[#entries + 1] = pack('<I7I7I7I4', process, now + lease, own_number, own) end
    return pack('<c12I2', prefix, #entries), concat(entries)
  end
end
