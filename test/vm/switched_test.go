// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
)

// TestSwitch holds the switch to what the tests behind it take for granted: no DHCP, and
// answers to pings that are counted, and are for nobody else.
func TestSwitch(t *testing.T) {
	s := startSwitch(t, 1, &netSwitch{deaf: true})
	ping := echo(net.HardwareAddr{0x52, 0x54, 0, 0, 0, 0x0b}, [4]byte{10, 0, 2, 15}, 1)
	if sum(ping[14:34]) != 0 || sum(ping[34:42]) != 0 {
		t.Error("a ping has wrong sums")
	}
	for from := range 2 {
		if got := s.filter(from, ping); !bytes.Equal(got, ping) {
			t.Errorf("from %d: %x", from, got)
		}
	}
	question := bytes.Clone(ping)
	question[23] = 17
	binary.BigEndian.PutUint16(question[36:], 67)
	if got := s.filter(1, question); got != nil {
		t.Errorf("DHCP: %x", got)
	}
	s.pinged.Store(1)
	reply := bytes.Clone(ping)
	copy(reply[30:34], ownIP[:])
	reply[34] = 0
	if got := s.filter(1, reply); got != nil {
		t.Errorf("an answer to the switch: %x", got)
	}
	<-s.answer
}
