// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// netSwitch stands between a machine's cards and its network, as a managed switch does: it
// tags frames to the cards, answers by LACP, gives nobody an address, and pings a node to
// see that it keeps its own.
type netSwitch struct {
	vlan uint16 // on the side of the cards; 0 is none
	lacp bool
	deaf bool   // what asks for an address by DHCP is not passed on
	http string // what firmware that asks as HTTPClient is told to start from; empty: nothing

	cables []string // for machine.Options
	mu     sync.Mutex
	ports  []net.Conn // the network's first; nil while nothing is plugged
	asked  sync.Map   // ids of questions of HTTPClient

	pinged, answered atomic.Int32
	answer           chan struct{}
}

// startSwitch starts one for so many cards, until the test ends. It passes frames on when
// the machine connects.
func startSwitch(t *testing.T, cards int, s *netSwitch) *netSwitch {
	t.Helper()
	s.ports, s.answer = make([]net.Conn, cards+1), make(chan struct{}, 1)
	for n := range s.ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		s.cables = append(s.cables, l.Addr().String())
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return // the test is over
				}
				s.mu.Lock()
				s.ports[n] = conn
				s.mu.Unlock()
				go s.serve(n, conn)
			}
		}()
	}
	return s
}

// serve passes on what comes from a port.
func (s *netSwitch) serve(n int, conn net.Conn) {
	for {
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return // the machine is off
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(conn, frame); err != nil || len(frame) < 14 {
			return // as above
		}
		s.pass(n, frame)
	}
}

const (
	typeVLAN, typeSlow, typeARP, typeIPv4 = 0x8100, 0x8809, 0x0806, 0x0800
	portDHCP                              = 67
)

func kind(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[12:]) }

// pass is one frame from a port.
func (s *netSwitch) pass(from int, frame []byte) {
	if from == 0 {
		frame = s.offer(frame)
		for n := 1; n < len(s.ports); n++ {
			s.send(n, s.tag(frame))
		}
		return
	}
	if kind(frame) == typeSlow {
		if s.lacp && len(frame) >= 14+42 && frame[14] == 1 {
			s.send(from, lacpAnswer(from, frame))
		}
		return
	}
	if s.vlan != 0 {
		if kind(frame) != typeVLAN || binary.BigEndian.Uint16(frame[14:])&0xfff != s.vlan {
			return // it is on no network
		}
		frame = append(bytes.Clone(frame[:12]), frame[16:]...)
	}
	if s.deaf && kind(frame) == typeIPv4 && len(frame) > 38 && frame[23] == 17 && binary.BigEndian.Uint16(frame[14+int(frame[14]&15)*4+2:]) == portDHCP {
		return
	}
	s.hear(frame)
	if !s.mine(from, frame) {
		s.send(0, frame)
	}
}

// tag is a frame as it goes to the cards.
func (s *netSwitch) tag(frame []byte) []byte {
	if s.vlan == 0 {
		return frame
	}
	tagged := append(bytes.Clone(frame[:12]), typeVLAN>>8, typeVLAN&255, byte(s.vlan>>8), byte(s.vlan))
	return append(tagged, frame[12:]...)
}

func (s *netSwitch) send(n int, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[n] == nil {
		return
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	_, _ = s.ports[n].Write(append(out, frame...)) // a machine that is off hears nothing
}

// ownMAC and ownIP are those of the switch itself, by which it pings.
var (
	ownMAC = []byte{0x02, 0, 0, 0, 0, 0xaa}
	ownIP  = netip.MustParseAddr("10.0.2.200").As4()
)

// lacpAnswer is what a partner says who takes the port (IEEE 802.1AX, 6.4.2.3).
func lacpAnswer(port int, frame []byte) []byte {
	out := append([]byte{0x01, 0x80, 0xc2, 0, 0, 2}, ownMAC...)
	out = append(out, typeSlow>>8, typeSlow&255, 1, 1)
	out = append(out, 1, 20, 0x80, 0)
	out = append(out, ownMAC...)
	out = append(out, 0, 1, 0, 0x80, 0, byte(port), 0x3f, 0, 0, 0) // active, fast, in sync, collecting and distributing
	out = append(out, 2, 20)
	out = append(out, frame[18:36]...) // its own, as it has said
	out = append(out, 3, 16, 0, 0)
	out = append(out, make([]byte, 12)...)
	return append(out, make([]byte, 124-len(out))...)
}

// mine takes what is for the switch itself: questions for its address, and answers to pings.
func (s *netSwitch) mine(from int, frame []byte) bool {
	switch {
	case kind(frame) == typeARP && len(frame) >= 42 && frame[21] == 1 && bytes.Equal(frame[38:42], ownIP[:]):
		out := append(bytes.Clone(frame[6:12]), ownMAC...)
		out = append(out, frame[12:20]...)
		out = append(out, 0, 2)
		out = append(append(out, ownMAC...), ownIP[:]...)
		s.send(from, s.tag(append(out, frame[22:32]...)))
		return true
	case kind(frame) == typeIPv4 && len(frame) >= 42 && frame[23] == 1 && bytes.Equal(frame[30:34], ownIP[:]):
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

// pings asks a node whether it is there, again and again until the test ends. Each question
// has a minute for its answer: a busy host is slow, and a node without its address silent.
func (s *netSwitch) pings(t *testing.T, mac net.HardwareAddr, ip netip.Addr) {
	go func() {
		for t.Context().Err() == nil {
			n := s.pinged.Add(1)
			for card := 1; card < len(s.ports); card++ {
				s.send(card, s.tag(echo(mac, ip.As4(), uint16(n))))
			}
			select {
			case <-s.answer:
				s.answered.Add(1)
			case <-time.After(time.Minute):
			case <-t.Context().Done():
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// echo is a ping (RFC 792).
func echo(to net.HardwareAddr, ip [4]byte, n uint16) []byte {
	icmp := []byte{8, 0, 0, 0, 0, 1, byte(n >> 8), byte(n)}
	binary.BigEndian.PutUint16(icmp[2:], sum(icmp))
	head := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0}
	head = append(append(head, ownIP[:]...), ip[:]...)
	binary.BigEndian.PutUint16(head[10:], sum(head))
	out := append(append(bytes.Clone(to), ownMAC...), typeIPv4>>8, typeIPv4&255)
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
