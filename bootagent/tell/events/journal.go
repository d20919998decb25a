// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// journalSocket takes entries as datagrams, see the journal's native protocol in
// systemd-journald.service(8).
const journalSocket = "/run/systemd/journal/socket"

// send adds an entry to systemd's journal: the message, and each field as CAISSON_NAME.
// Without systemd that is an error.
func (l Log) send(event, message string, fields []Field) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: filepath.Join(l.Root, journalSocket), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close() // a datagram is sent or it is not
	var entry bytes.Buffer
	put := func(name, value string) {
		if !strings.Contains(value, "\n") {
			entry.WriteString(name + "=" + value + "\n")
			return
		}
		entry.WriteString(name + "\n") // with its length, for it has line breaks
		entry.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
		entry.WriteString(value + "\n")
	}
	put("MESSAGE", message)
	put("PRIORITY", "6")
	put("SYSLOG_IDENTIFIER", "caisson-agent")
	put("CAISSON_EVENT", event)
	for _, f := range fields {
		put("CAISSON_"+strings.ToUpper(f.Name), fmt.Sprint(f.Value))
	}
	_, err = conn.Write(entry.Bytes())
	return err
}

// saidToJournal reports whether standard error is the journal's, see JOURNAL_STREAM
// in systemd.exec(5).
func saidToJournal() bool {
	var st unix.Stat_t
	if unix.Fstat(2, &st) != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
