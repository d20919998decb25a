// SPDX-License-Identifier: Apache-2.0

package blackbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
			lines = last(append(lines, line))
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

// last keeps the lines that an event has room for.
func last(lines []string) []string {
	return lines[max(0, len(lines)-maxLines):]
}
