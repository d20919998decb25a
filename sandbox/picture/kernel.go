// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/safchain/ethtool"
)

// text reads the beginning of a file, trimmed; ok is false where it cannot be read.
func text(name string) (value string, ok bool) {
	f, err := os.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(bytes.TrimSpace(data)), err == nil
}

// sysctls are the keys below /proc/sys. A look into fs/binfmt_misc would mount it.
func (p Picture) sysctls() {
	const top = "/proc/sys"
	swap := strings.NewReplacer("/", ".", ".", "/")                               // as sysctl(8) spells keys
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error { // what cannot be read is not in the picture
		switch {
		case err != nil:
			return fs.SkipDir // it is gone, or is not for anybody
		case name == top+"/fs/binfmt_misc":
			return fs.SkipDir
		case d.Type().IsRegular():
			if value, ok := text(name); ok {
				p["sysctl "+swap.Replace(name[len(top)+1:])] = value
			}
		}
		return nil
	})
}

// attributes notes the files below /sys that patterns name.
func (p Picture) attributes(patterns []string, d devices) {
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			continue // a pattern that is none names nothing
		}
		for _, name := range names {
			key := d.attribute(name)
			if key == "" {
				continue
			}
			if value, ok := text(name); ok {
				p["sysfs "+key] = value
			}
		}
	}
}

// modules are those that are loaded.
func (p Picture) modules() {
	value, _ := text("/proc/modules")
	for line := range strings.Lines(value) {
		p["module "+strings.Fields(line)[0]] = "there"
	}
}

// limits are those of this process, whom sshd has just given a session.
func (p Picture) limits() {
	value, _ := text("/proc/self/limits")
	for line := range strings.Lines(value) {
		if len(line) > 26 && !strings.HasPrefix(line, "Limit") {
			p["limit "+strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:]), " ")
		}
	}
}

// network are links with the features of their cards, addresses and routes.
func (p Picture) network() error {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("ask for links: %w", err)
	}
	defer conn.Close() // only read
	links, err := conn.Link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	cards, err := ethtool.NewEthtool()
	if err == nil {
		defer cards.Close()
	}
	names := map[uint32]string{0: "-"}
	for _, l := range links {
		names[l.Index] = l.Attributes.Name
	}
	for _, l := range links {
		a := l.Attributes
		master := "-"
		if a.Master != nil {
			master = names[*a.Master]
		}
		p["link "+a.Name] = fmt.Sprintf("mac %s mtu %d flags %#x state %d master %s qdisc %s", a.Address, a.MTU, l.Flags,
			a.OperationalState, master, a.QueueDisc)
		if cards == nil {
			continue
		}
		features, err := cards.Features(a.Name)
		for feature, on := range features {
			if err == nil && feature != "" {
				p["feature "+a.Name+" "+feature] = map[bool]string{true: "on", false: "off"}[on]
			}
		}
	}
	addresses, err := conn.Address.List()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.Attributes != nil {
			p[fmt.Sprintf("address %s %s/%d", names[a.Index], a.Attributes.Address, a.PrefixLength)] = fmt.Sprintf("scope %d", a.Scope)
		}
	}
	routes, err := conn.Route.List()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		a := r.Attributes
		to := (&net.IPNet{IP: a.Dst, Mask: net.CIDRMask(int(r.DstLength), 8*len(a.Dst))}).String()
		if len(a.Dst) == 0 {
			to = fmt.Sprintf("default (%d)", r.Family)
		}
		p[fmt.Sprintf("route %s dev %s table %d metric %d", to, names[a.OutIface], a.Table,
			a.Priority)] = fmt.Sprintf("via %s protocol %d scope %d type %d", a.Gateway, r.Protocol, r.Scope, r.Type)
	}
	return nil
}
