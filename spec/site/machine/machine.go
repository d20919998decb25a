// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Values are the settings themselves: what an override may change.
type Values struct {
	Kernel  argsDoc       `site:"kernel" doc:"arguments after those of layer.kernel"`
	Network NetworkDoc    `site:"network" doc:"laid over the site's network"`
	Agent   agentDoc      `site:"agent" doc:"how the agent of the node works"`
	CAs     []shape.Block `site:"cas" doc:"certificates the node trusts: PEM, or files of it"`
}

type argsDoc struct {
	Args []shape.Text `site:"args"`
}

// NetworkDoc is a network as it is written.
type NetworkDoc struct {
	DNS        []shape.Text   `site:"dns" doc:"resolver addresses"`
	Search     []shape.Text   `site:"search" doc:"search domains"`
	NTP        []shape.Text   `site:"ntp" doc:"time servers"`
	Interfaces []interfaceDoc `site:"interfaces" doc:"interfaces that do not use DHCP"`
}

type interfaceDoc struct {
	MAC       shape.Text   `site:"mac" doc:"finds the interface; else name does"`
	Name      shape.Text   `site:"name"`
	Addresses []shape.Text `site:"addresses,required" doc:"with prefix length, as in 192.0.2.7/24"`
	Gateway   shape.Text   `site:"gateway"`
	MTU       shape.Number `site:"mtu"`
	At        report.Pos
}

// Settings is what [Values] compile to.
type Settings struct {
	Args    []string
	Network spec.Network
	CAs     []string
	Agent   *spec.Agent // nil when nothing is said of it
}

var (
	hostText = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9.])?$`)
	macText  = regexp.MustCompile(`^[0-9a-f]{12}$`) // without colons
	// A blank or a quote would change where the arguments end.
	kernelArg = regexp.MustCompile(`^[!-~]+$`)
	ownArg    = regexp.MustCompile(`^caisson\.(watchdog|deadline|patience)=[0-9]{1,5}$`) // seconds, see bootagent/boot/identity
)

// Compile checks the settings of one target.
func Compile(c *shape.Checker, v *tree.Value) (m Settings) {
	var d Values
	c.Decode(v, &d)
	c.In("kernel", func() { m.Args = KernelArgs(c, d.Kernel.Args) })
	c.In("network", func() { m.Network = compileNetwork(c, d.Network) })
	c.In("agent", func() { m.Agent = compileAgent(c, d.Agent) })
	for _, t := range d.CAs {
		m.CAs = append(m.CAs, t.S)
	}
	return m
}

// KernelArgs checks arguments that are given to a kernel.
func KernelArgs(c *shape.Checker, args []shape.Text) []string {
	var out []string
	for _, a := range args {
		switch {
		case !kernelArg.MatchString(a.S) || strings.Contains(a.S, `"`):
			c.Errorf(a.At, "kernel-arg", "one argument an entry, without blanks or quotes", "%q is not one kernel argument", a.S)
		case ownArg.MatchString(a.S):
			out = append(out, a.S)
		case strings.HasPrefix(a.S, "caisson."):
			c.Errorf(a.At, "kernel-arg", "caisson.watchdog=, caisson.deadline= and caisson.patience=SECONDS may be given", "%s is set by caisson", a.S)
		case strings.HasPrefix(a.S, "init=") || strings.HasPrefix(a.S, "rdinit=") || strings.HasPrefix(a.S, "root="):
			c.Errorf(a.At, "kernel-arg", "", "%s would keep the agent from starting the node", a.S)
		default:
			out = append(out, a.S)
		}
	}
	return out
}

func compileNetwork(c *shape.Checker, d NetworkDoc) spec.Network {
	var n spec.Network
	for _, t := range d.DNS {
		if a, err := netip.ParseAddr(t.S); err != nil {
			c.Errorf(t.At, "address", "a resolver is given by address", "%q is not an IP address", t.S)
		} else {
			n.DNS = append(n.DNS, a.String())
		}
	}
	for _, t := range d.Search {
		if !hostText.MatchString(t.S) {
			c.Errorf(t.At, "host-name", "", "%q is not a domain", t.S)
		}
		n.Search = append(n.Search, t.S)
	}
	for _, t := range d.NTP {
		if _, err := netip.ParseAddr(t.S); err != nil && !hostText.MatchString(t.S) {
			c.Errorf(t.At, "host-name", "", "%q is neither a host name nor an IP address", t.S)
		}
		n.NTP = append(n.NTP, t.S)
	}
	for i, t := range d.Interfaces {
		c.Within([]string{"interfaces", shape.Nth(i)}, func() { n.Interfaces = append(n.Interfaces, compileInterface(c, t)) })
	}
	return n
}

func compileInterface(c *shape.Checker, d interfaceDoc) spec.Interface {
	out := spec.Interface{Name: d.Name.S, Gateway: d.Gateway.S, MTU: int(d.MTU.N), MAC: strings.ReplaceAll(strings.ToLower(d.MAC.S), "-", ":")}
	if out.MAC == "" && out.Name == "" {
		c.Errorf(d.At, "required", "", "an interface needs mac or name")
	}
	if out.MAC != "" && !macText.MatchString(strings.ReplaceAll(out.MAC, ":", "")) {
		c.Errorf(d.MAC.At, "mac", "as in 52:54:00:12:34:56", "%q is not the address of an interface", d.MAC.S)
	}
	if out.Name != "" {
		c.Valid(d.Name.At, rules.Interface(out.Name))
	}
	for _, a := range d.Addresses {
		if _, err := netip.ParsePrefix(a.S); err != nil {
			c.Errorf(a.At, "address", "write the prefix length too, as in 192.0.2.7/24", "%q is not an address with a prefix length", a.S)
		}
		out.Addresses = append(out.Addresses, a.S)
	}
	if len(d.Addresses) == 0 {
		c.Errorf(d.At, "required", "leave the interface out to use DHCP", "an interface needs addresses")
	}
	if _, err := netip.ParseAddr(out.Gateway); out.Gateway != "" && err != nil {
		c.Errorf(d.Gateway.At, "address", "", "%q is not an IP address", out.Gateway)
	}
	if d.MTU.Set() && (d.MTU.N < 576 || d.MTU.N > 65535) {
		c.Errorf(d.MTU.At, "range", "", "an MTU is between 576 and 65535, not %d", d.MTU.N)
	}
	return out
}

// CertificateProblem returns what keeps a text from being certificates, or "".
func CertificateProblem(text string) string {
	rest := []byte(text)
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return "a PEM block of type " + block.Type + " where certificates belong"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "a certificate that cannot be read: " + err.Error()
		}
	}
	if n == 0 {
		return "it has no PEM certificate"
	}
	return ""
}
