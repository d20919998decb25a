// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
)

// cable is one end of what QEMU plugs into a switch.
type cable struct {
	*testing.T
	net.Conn
}

func (c cable) send(frame []byte) {
	c.Helper()
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		c.Fatal(err)
	}
}

func (c cable) hears(want []byte) {
	c.Helper()
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		c.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(c, frame); err != nil {
		c.Fatal(err)
	}
	if !bytes.Equal(frame, want) {
		c.Errorf("%x, want %x", frame, want)
	}
}

// frame is one between two stations.
func frame(kind uint16, data ...byte) []byte {
	out := append([]byte{0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2}, byte(kind>>8), byte(kind))
	return append(append(out, data...), make([]byte, 110-len(data))...)
}

func (s *Switch) isPlugged(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[n] != nil
}

func plugged(t *testing.T, cards int, s *Switch) (cables []cable) {
	t.Helper()
	addresses, err := s.Listen(t.Context(), cards)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range addresses {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) // the test is over
		cables = append(cables, cable{t, conn})
	}
	for n := range s.ports { // a switch drops what is for a port that nothing is plugged into yet
		for !s.isPlugged(n) {
			runtime.Gosched()
		}
	}
	return cables
}

// TestSwitch: tags are on the side of the cards alone, what has none or another is of no
// network, and the filter sees frames without.
func TestSwitch(t *testing.T) {
	refused := frame(TypeARP, 9)
	s := &Switch{VLAN: 100, Filter: func(_ int, f []byte) []byte {
		if bytes.Equal(f, refused) {
			return nil
		}
		return f
	}}
	cables := plugged(t, 1, s)
	network, card := cables[0], cables[1]
	tagged := func(id byte, f []byte) []byte {
		return append(append(bytes.Clone(f[:12]), 0x81, 0, 0, id), f[12:]...)
	}
	card.send(frame(TypeIPv4, 1))            // no tag
	card.send(tagged(7, frame(TypeIPv4, 2))) // another
	card.send(tagged(100, refused))          // by the filter
	card.send(frame(TypeSlow, 1))            // LACP, which this one does not speak
	card.send(tagged(100, frame(TypeIPv4, 3)))
	network.hears(frame(TypeIPv4, 3))
	network.send(frame(TypeARP, 4))
	card.hears(tagged(100, frame(TypeARP, 4)))
}

// TestSwitchLACP: the answer has the asker's own words in it, and goes to that card alone.
func TestSwitchLACP(t *testing.T) {
	cables := plugged(t, 2, &Switch{LACP: true})
	ask := frame(TypeSlow, append([]byte{1, 1, 1, 20}, bytes.Repeat([]byte{7}, 18)...)...)
	cables[2].send(ask)
	cables[2].hears(lacpAnswer(2, ask))
	if got := lacpAnswer(2, ask); len(got) != 124 || !bytes.Equal(got[38:56], ask[18:36]) || got[36] != 2 || got[32] != 0x3f {
		t.Errorf("%x", got)
	}
	cables[1].send(frame(TypeIPv4, 5))
	cables[0].hears(frame(TypeIPv4, 5))
	cables[0].send(frame(TypeIPv4, 6))
	for _, card := range cables[1:] {
		card.hears(frame(TypeIPv4, 6))
	}
}
