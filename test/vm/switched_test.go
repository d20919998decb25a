// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// TestSwitch holds the switch to what the tests behind it take for granted: tags on the side
// of the cards alone, an answer by LACP that has the asker's own words in it, no DHCP, and
// answers to pings that are counted.
func TestSwitch(t *testing.T) {
	s := startSwitch(t, 1, &netSwitch{vlan: 100, lacp: true, deaf: true})
	plugs := make([]net.Conn, len(s.cables))
	for n, at := range s.cables {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() // the test is over
		plugs[n] = conn
	}
	send := func(n int, frame []byte) {
		t.Helper()
		if _, err := plugs[n].Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(n int) []byte {
		t.Helper()
		var length [4]byte
		if _, err := io.ReadFull(plugs[n], length[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(plugs[n], frame); err != nil {
			t.Fatal(err)
		}
		return frame
	}
	card := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 0x0b}
	ask := append(append([]byte{0x01, 0x80, 0xc2, 0, 0, 2}, card...), typeSlow>>8, typeSlow&255, 1, 1, 1, 20)
	ask = append(ask, bytes.Repeat([]byte{7}, 18)...)
	ask = append(ask, make([]byte, 124-len(ask))...)
	send(1, ask) // and the switch knows the port before anything comes from the network
	if got := hears(1); len(got) != 124 || kind(got) != typeSlow || got[32] != 0x3f || !bytes.Equal(got[38:56], ask[18:36]) || got[36] != 2 || got[56] != 3 {
		t.Errorf("by LACP: %x", got)
	}
	ping := echo(card, [4]byte{10, 0, 2, 15}, 1)
	if sum(ping[14:34]) != 0 || sum(ping[34:42]) != 0 {
		t.Error("a ping has wrong sums")
	}
	tagged := s.tag(ping)
	send(1, append(bytes.Clone(ping), 0)) // without a tag: of no network
	send(1, dhcp(s.tag(ping)))
	send(1, tagged)
	if got := hears(0); !bytes.Equal(got, ping) {
		t.Errorf("the network hears %x", got)
	}
	send(0, ping)
	if got := hears(1); !bytes.Equal(got, tagged) || binary.BigEndian.Uint16(got[14:]) != 100 {
		t.Errorf("the card hears %x", got)
	}
	s.pinged.Store(1)
	reply := bytes.Clone(ping)
	copy(reply[30:34], ownIP[:])
	reply[34] = 0
	send(1, s.tag(reply))
	<-s.answer
}

// dhcp makes a tagged frame a question for an address.
func dhcp(frame []byte) []byte {
	frame[27] = 17
	binary.BigEndian.PutUint16(frame[40:], portDHCP)
	return frame
}
