// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"cmp"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
)

const (
	every  = 250 * time.Millisecond
	patent = 3 * time.Second // silence that is shorter is one of an emulated processor
	ping   = "ping"
)

// own is the address of the prober's card.
var own = net.HardwareAddr{0x02, 0, 0, 0, 0, 0xab}

// Probe asks one machine.
//
// It sends a ping, and the first half of a connection to each TCP port, four times a second. Services
// do not notice: no connection is completed. It has an address of its own in the network.
type Probe struct {
	at          *machine.Switch
	card        net.HardwareAddr
	guest, mine netip.Addr

	mu     sync.Mutex
	heard  map[string]time.Time     // the last answer
	silent map[string]time.Duration // between answers
}

// Probe puts a prober into the network.
func (p *Plug) Probe() (*Probe, error) {
	p.Between = cmp.Or(p.Between, &machine.Switch{})
	card, err := net.ParseMAC(p.MACs[0])
	if err != nil {
		return nil, err
	}
	guest, mine := netip.MustParseAddr("10.0.2.15"), netip.MustParseAddr("10.0.2.77") // of QEMU's own network
	if n := p.Network; n.Prefix.IsValid() {
		guest = n.Address
		used := map[netip.Addr]bool{n.Address: true, n.Router: true, n.DNS: true, p.Registry.Addr(): true}
		for mine = n.Prefix.Addr().Next(); used[mine]; {
			mine = mine.Next()
		}
	}
	return newProbe(p.Between, card, guest, mine), nil
}

// newProbe returns a prober on a switch with an address of that network, which asks the machine
// whose first card and address are given.
func newProbe(at *machine.Switch, card net.HardwareAddr, guest, mine netip.Addr) *Probe {
	p := &Probe{at: at, card: card, guest: guest, mine: mine, heard: map[string]time.Time{}, silent: map[string]time.Duration{}}
	next := at.Filter
	at.Filter = func(from int, frame []byte) []byte {
		if from != 0 && p.takes(from, frame) {
			return nil
		}
		if next != nil {
			return next(from, frame)
		}
		return frame
	}
	return p
}

// Begin asks for pings and each of the ports until ctx ends.
func (p *Probe) Begin(ctx context.Context, ports []uint16) {
	now := time.Now()
	p.mu.Lock()
	p.heard[ping] = now
	for _, port := range ports {
		p.heard[nameOf(port)] = now
	}
	p.mu.Unlock()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			p.at.Send(1, p.ipv4(1, echo()))
			for _, port := range ports {
				p.at.Send(1, p.ipv4(6, p.syn(port)))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Silent returns for how many seconds there was no answer so far, by ping and tcp/PORT.
func (p *Probe) Silent() map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]float64{}
	for name, at := range p.heard {
		sum := p.silent[name]
		if gap := time.Since(at); gap > patent {
			sum += gap
		}
		out[name] = float64(sum.Milliseconds()/100) / 10
	}
	return out
}

func nameOf(port uint16) string { return "tcp/" + strconv.Itoa(int(port)) }

// hear notes an answer.
func (p *Probe) hear(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, asked := p.heard[name]
	if !asked {
		return
	}
	if gap := time.Since(last); gap > patent {
		p.silent[name] += gap
	}
	p.heard[name] = time.Now()
}

// takes reports whether a frame of the machine is for the prober, and answers questions for
// its address.
func (p *Probe) takes(from int, frame []byte) bool {
	mine := p.mine.As4()
	switch {
	case len(frame) >= 42 && machine.TypeOf(frame) == machine.TypeARP && [4]byte(frame[38:42]) == mine:
		answer := append(append([]byte{}, frame[6:12]...), own...)
		answer = append(answer, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2)
		answer = append(append(append(answer, own...), mine[:]...), frame[22:32]...)
		p.at.Send(from, answer)
		return true
	case len(frame) >= 42 && machine.TypeOf(frame) == machine.TypeIPv4 && [4]byte(frame[30:34]) == mine:
		body := frame[min(14+int(frame[14]&15)*4, len(frame)):]
		switch {
		case frame[23] == 1 && len(body) >= 8 && body[0] == 0:
			p.hear(ping)
		case frame[23] == 6 && len(body) >= 14 && body[13]&0x12 == 0x12: // SYN and ACK
			p.hear(nameOf(binary.BigEndian.Uint16(body)))
			p.at.Send(from, p.ipv4(6, p.segment(binary.BigEndian.Uint16(body), binary.BigEndian.Uint32(body[8:]), 0x04))) // RST
		}
		return true
	}
	return false
}

// ipv4 is a frame to the machine.
func (p *Probe) ipv4(protocol byte, body []byte) []byte {
	mine, guest := p.mine.As4(), p.guest.As4()
	head := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0}
	head = append(append(head, mine[:]...), guest[:]...)
	binary.BigEndian.PutUint16(head[2:], uint16(len(head)+len(body)))
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	frame := append(append(append([]byte{}, p.card...), own...), 0x08, 0x00)
	return append(append(frame, head...), body...)
}

func echo() []byte {
	b := []byte{8, 0, 0, 0, 0xca, 0x15, 0, 1}
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b
}

func (p *Probe) syn(port uint16) []byte { return p.segment(port, 0, 0x02) }

// segment is one of TCP without data, from the port 40000.
func (p *Probe) segment(port uint16, sequence uint32, flags byte) []byte {
	mine, guest := p.mine.As4(), p.guest.As4()
	b := append(append([]byte{}, mine[:]...), guest[:]...)
	b = append(b, 0, 6, 0, 20)                               // the pseudo header
	b = binary.BigEndian.AppendUint16(b, 40000)              // from
	b = binary.BigEndian.AppendUint16(b, port)               // to
	b = binary.BigEndian.AppendUint32(b, sequence)           // of which the first is 0
	b = append(b, 0, 0, 0, 0, 5<<4, flags, 4, 0, 0, 0, 0, 0) // no acknowledgement, a header of 20 bytes, a window of 1024
	binary.BigEndian.PutUint16(b[28:], checksum(b))
	return b[12:]
}

// checksum is that of RFC 1071; the length is even.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
