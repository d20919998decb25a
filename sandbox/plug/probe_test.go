// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
)

// A machine on the switch that answers pings and port 22, and not port 80: it hears whole
// packets, and gets no connection.
func TestProbe(t *testing.T) {
	card := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	guest, mine := netip.MustParseAddr("10.0.2.15"), netip.MustParseAddr("10.0.2.77")
	at := &machine.Switch{}
	p := newProbe(at, card, guest, mine)
	cables, err := at.Listen(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", cables[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resets := make(chan bool, 1000)
	go answer(conn, card, resets)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p.Begin(ctx, []uint16{22, 80})
	for range 2 {
		select {
		case <-resets:
		case <-time.After(20 * time.Second):
			t.Fatal("no connection was begun and ended")
		}
	}
	p.mu.Lock()
	p.heard[nameOf(80)] = p.heard[nameOf(80)].Add(-time.Minute) // as if it had been asked for so long
	p.mu.Unlock()
	if got := p.Silent(); got["ping"] != 0 || got["tcp/22"] != 0 || got["tcp/80"] < 60 || len(got) != 3 {
		t.Errorf("%v", got)
	}
	p.mu.Lock()
	p.heard[nameOf(22)] = p.heard[nameOf(22)].Add(-time.Minute) // it answers again after that
	p.mu.Unlock()
	for end := time.Now().Add(20 * time.Second); ; {
		<-resets
		p.mu.Lock()
		over := time.Since(p.heard[nameOf(22)]) < patent
		p.mu.Unlock()
		if over || time.Now().After(end) {
			break
		}
	}
	if got := p.Silent(); got["tcp/22"] < 60 || got["tcp/22"] > 90 || got["ping"] != 0 {
		t.Errorf("once it answers again: %v", got)
	}
}

// TestProbeShortFrames: a packet that ends within the header that it claims to have is taken and left unread.
func TestProbeShortFrames(t *testing.T) {
	mine := netip.MustParseAddr("10.0.2.77")
	p := newProbe(&machine.Switch{}, own, netip.MustParseAddr("10.0.2.15"), mine)
	for length := 42; length <= 75; length++ {
		for words := range byte(16) {
			for _, protocol := range []byte{1, 6} {
				frame := make([]byte, length)
				frame[12], frame[14], frame[23] = 0x08, 4<<4|words, protocol
				copy(frame[30:], mine.AsSlice())
				if !p.takes(1, frame) {
					t.Errorf("%d bytes, a header of %d words, protocol %d: passed on", length, words, protocol)
				}
			}
		}
	}
}

// answer is the machine.
func answer(conn net.Conn, card net.HardwareAddr, resets chan<- bool) {
	for {
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		if !bytes.Equal(frame[:6], card) || checksum(frame[14:34]) != 0 {
			continue
		}
		out := append(append(bytes.Clone(frame[6:12]), card...), frame[12:]...)
		copy(out[26:30], frame[30:34])
		copy(out[30:34], frame[26:30])
		switch {
		case frame[23] == 1 && checksum(frame[34:]) == 0:
			out[34] = 0
		case frame[23] == 6 && frame[47] == 0x02 && binary.BigEndian.Uint16(frame[36:]) == 22:
			copy(out[34:36], frame[36:38])
			copy(out[36:38], frame[34:36])
			out[47] = 0x12
		case frame[23] == 6 && frame[47] == 0x04:
			resets <- true
			continue
		default:
			continue
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(out))), out...)); err != nil {
			return
		}
	}
}
