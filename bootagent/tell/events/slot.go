// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// A slot is a page: what a disk writes at once more often than not.
const (
	slot  = 4096
	slots = 64
	size  = slot * slots
)

// record is an event as it is in its slot: the checksum of what follows up to the line's
// end, a space, and JSON. The rest of the slot is zero.
type record struct {
	Seq   uint64     `json:"seq"`
	Event spec.Event `json:"event"`
}

const overhead = len("00000000 ") + len("\n")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode fills a slot.
func encode(r record) ([]byte, error) {
	for {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if len(text)+overhead <= slot {
			out := make([]byte, slot)
			copy(out, fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text))
			return out, nil
		}
		if !shorten(&r.Event) {
			return nil, errors.New("the event is too long")
		}
	}
}

// shorten takes something away from an event that is too long, least needed first: the
// older of the kernel's lines, then ends of what is said.
func shorten(e *spec.Event) bool {
	if len(e.Console) > 1 {
		e.Console = e.Console[1:]
		return true
	}
	texts := []*string{&e.Why, &e.Did, &e.Key, &e.Item, &e.Overlay, &e.Layer, &e.Boot, &e.Of, &e.Errno, &e.Code, &e.Event}
	if len(e.Console) == 1 {
		texts = append(texts, &e.Console[0])
	}
	longest := slices.MaxFunc(texts, func(a, b *string) int { return cmp.Compare(len(*a), len(*b)) })
	if len(*longest) < 2 {
		return false
	}
	*longest = strings.ToValidUTF8((*longest)[:len(*longest)/2], "")
	return true
}

// parse returns the whole records of a file, oldest first. One that is not in the slot
// of its number was put there by somebody else.
func parse(data []byte) []record {
	var found []record
	for n := range slots {
		if n*slot >= len(data) {
			break
		}
		text := data[n*slot : min((n+1)*slot, len(data))]
		if r, ok := decode(text); ok && r.Seq%slots == uint64(n) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b record) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

func decode(text []byte) (r record, ok bool) {
	line, _, ended := bytes.Cut(text, []byte("\n"))
	sum, body, parted := bytes.Cut(line, []byte(" "))
	if !ended || !parted || fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)) != string(sum) {
		return r, false
	}
	// The loader's agent and the layer's write the same file, and either may be older.
	return r, json.Unmarshal(body, &r) == nil && r.Seq != math.MaxUint64
}

// Lines of the kernel's log that go into an event, and how much of each.
const (
	maxLines = 24
	maxLine  = 160
)

// Console returns the last lines of the kernel's log, /dev/kmsg, in the form that
// dmesg(1) prints. Who may not read it gets none.
func Console(kmsg string) []string {
	fd, err := unix.Open(kmsg, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd) // only read
	var lines []string
	for buf := make([]byte, 8192); ; {
		n, err := unix.Read(fd, buf) // one record, see Documentation/ABI/testing/dev-kmsg
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // it was overwritten meanwhile
			continue
		case err != nil || n <= 0:
			return lines
		}
		if line, ok := kmsgLine(string(buf[:n])); ok {
			lines = append(lines, line)
			lines = lines[max(0, len(lines)-maxLines):] // an event has no more room
		}
	}
}

// kmsgLine is the text of a record, "6,339,5140900,-;NET: Registered", and its time.
func kmsgLine(record string) (string, bool) {
	head, text, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return "", false
	}
	micros, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n") // then what it is about
	return short(fmt.Sprintf("[%5d.%06d] %s", micros/1e6, micros%1e6, text)), true
}

func short(line string) string {
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "")
	}
	return line
}
