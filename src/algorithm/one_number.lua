    -- One quota that counts by a number (see number.lua) that nothing stands aside of, in one go.
    --
    -- Answers as the ledger would; why there is no function in it stands in one_log.lua.
    repeat
      if some_aside == nil then some_aside = redis.call('EXISTS', unpack(KEYS, 1, keys_left)) > 0 end
      if not only or some_aside and redis.call('EXISTS', KEYS[key]) == 1 then break end
      local name = KEYS[state + 1]
      local raw = redis.pcall('GET', name)
      local time = raw == false and 0 or type(raw) == 'string' and string.find(raw, '^%+?%d+$') and tonumber(raw)
      if not time or time > now + SANE then break end

      local kind, interval, tolerance, longest_wait = only[1], only[2], 0, HORIZON
      if kind == 'gcra' then
        tolerance = only[3]
      elseif kind == 'leaky' then
        -- As in leaky_bucket.lua.
        local capacity, unit = only[3], 2 * DRIFT
        local all = (interval + floor) * capacity
        all = all + math.floor(all / unit) * capacity + math.floor(all % unit * capacity / unit)
        if all < longest_wait then longest_wait = all end
      end

      local x, position = struct.unpack('<I8', asks)
      if x < now then x = now end
      local place, burst_at, burst, is_touched = size + 2, 0, 0, false
      while position <= #asks do
        local requests, cost, max_wait
        requests, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
        if max_wait > longest_wait then max_wait = longest_wait end
        while requests > 0 do
          local at = time
          if kind == 'gcra' then at = time + interval * (cost - 1) - tolerance end
          if at < x then at = x end
          local wait = at - now
          if wait > max_wait then
            answer[place + 1], answer[place + 2] = -requests, wait
            place, requests = place + 2, 0
          else
            if at ~= burst_at then burst_at, burst = at, 0 end
            local record = (at > earliest and at or earliest) + margin + burst * stagger + math.floor(wait / DRIFT)
            answer[place + 1], answer[place + 2], answer[place + 3], answer[place + 4] = 1, at, record, time
            place, burst, requests = place + 4, burst + 1, requests - 1
            time = (time > record and time or record) + interval * cost
            x, is_touched = at, true
          end
        end
      end

      if is_touched then
        local life = time - now
        -- As in one_log.lua.
        local text_of_life = math.ceil(life / 1000) + 1
        text_of_life = string.format(text_of_life < 2 ^ 31 and '%d' or '%.0f', text_of_life)
        redis.call('PSETEX', name, text_of_life, string.format('%.0f', time))
      end
      local remaining, latest, departs = 0, now + tolerance, earliest + margin
      if time <= latest then
        remaining = 1
        -- Those behind it count from its record.
        if kind == 'gcra' then
          remaining = 1 + math.max(0, math.floor((latest - math.max(time, departs)) / interval))
        end
      end
      answer[size + 1], answer[size + 2] = remaining, time > now and time - now or 0
      size, done = place, true
    until true
