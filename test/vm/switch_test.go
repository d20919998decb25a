// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
)

// netSwitch is a [machine.Switch] that gives nobody an address, tells firmware what to start
// from, and pings a node to see that it keeps its own.
type netSwitch struct {
	machine.Switch
	deaf   bool             // what asks for an address by DHCP is not passed on
	http   string           // what firmware that asks as HTTPClient is told to start from; empty: nothing
	cables []string         // for machine.Options
	asked  sync.Map         // ids of questions of HTTPClient
	time   func() time.Time // what it tells who asks for the time; nil: nothing

	pinged, answered atomic.Int32
	answer           chan struct{}
}

// startSwitch starts one for so many cards, until the test ends. It passes frames on when
// the machine connects.
func startSwitch(t *testing.T, cards int, s *netSwitch) *netSwitch {
	t.Helper()
	s.answer, s.Filter = make(chan struct{}, 1), s.filter
	var err error
	if s.cables, err = s.Listen(t.Context(), cards); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *netSwitch) filter(from int, frame []byte) []byte {
	switch {
	case from == 0:
		return s.offer(frame)
	case s.deaf && machine.AsksDHCP(frame), s.serveTime(from, frame), s.mine(from, frame):
		return nil
	}
	s.hear(frame)
	return frame
}

// ownIP is the address of the switch itself, by which it pings.
var ownIP = netip.MustParseAddr("10.0.2.200").As4()

// mine takes what is for the switch itself: questions for its address, and answers to pings.
func (s *netSwitch) mine(from int, frame []byte) bool {
	switch {
	case machine.TypeOf(frame) == machine.TypeARP && len(frame) >= 42 && frame[21] == 1 && bytes.Equal(frame[38:42], ownIP[:]):
		out := append(bytes.Clone(frame[6:12]), machine.SwitchMAC...)
		out = append(out, frame[12:20]...)
		out = append(out, 0, 2)
		out = append(append(out, machine.SwitchMAC...), ownIP[:]...)
		s.Send(from, append(out, frame[22:32]...))
		return true
	case machine.TypeOf(frame) == machine.TypeIPv4 && len(frame) >= 42 && frame[23] == 1 && bytes.Equal(frame[30:34], ownIP[:]):
		if frame[34] == 0 && int32(binary.BigEndian.Uint16(frame[40:])) == s.pinged.Load()&0xffff {
			select {
			case s.answer <- struct{}{}:
			default:
			}
		}
		return true
	}
	return false
}

// pings asks a node whether it is there, again and again until the test ends or stop is
// called. Each question has a minute for its answer: a busy host is slow, and a node without
// its address silent.
func (s *netSwitch) pings(t *testing.T, mac net.HardwareAddr, ip netip.Addr) (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			n := s.pinged.Add(1)
			for card := 1; card < len(s.cables); card++ {
				s.Send(card, echo(mac, ip.As4(), uint16(n)))
			}
			select {
			case <-s.answer:
				s.answered.Add(1)
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return stop
}

// echo is a ping (RFC 792).
func echo(to net.HardwareAddr, ip [4]byte, n uint16) []byte {
	icmp := []byte{8, 0, 0, 0, 0, 1, byte(n >> 8), byte(n)}
	binary.BigEndian.PutUint16(icmp[2:], sum(icmp))
	head := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0}
	head = append(append(head, ownIP[:]...), ip[:]...)
	binary.BigEndian.PutUint16(head[10:], sum(head))
	out := append(append(bytes.Clone(to), machine.SwitchMAC...), machine.TypeIPv4>>8, machine.TypeIPv4&255)
	out = append(append(out, head...), icmp...)
	return append(out, make([]byte, 60-len(out))...)
}

// sum is the checksum of RFC 1071.
func sum(data []byte) uint16 {
	var n uint32
	for i := 0; i+1 < len(data); i += 2 {
		n += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}
