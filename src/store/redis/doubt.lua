          local start, version, span, tolerance
          start, version, span, tolerance, position = struct.unpack('<I8I8I8I8', asks, position)
          local is_lost = ledger.doubt(start, version, span, tolerance, born)
