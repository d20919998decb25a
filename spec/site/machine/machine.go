// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Values are the settings themselves: what an override may change.
type Values struct {
	Kernel  argsDoc       `site:"kernel" doc:"arguments after those of layer.kernel"`
	Network spec.Network  `site:"network" doc:"laid over the site's network"`
	Agent   agentDoc      `site:"agent" doc:"how the agent of the node works"`
	CAs     []shape.Block `site:"cas" doc:"certificates the node trusts: PEM, or files of it"`
}

type argsDoc struct {
	Args []shape.Text `site:"args"`
}

// Settings is what [Values] compile to.
type Settings struct {
	Args    []string
	Network spec.Network
	CAs     []string
	Agent   *spec.Agent // nil when nothing is said of it
}

var (
	// A blank or a quote would change where the arguments end.
	kernelArg = regexp.MustCompile(`^[!-~]+$`)
	ownArg    = regexp.MustCompile(`^caisson\.((watchdog|deadline|patience)=[0-9]{1,5}|decisions)$`) // seconds, see bootagent/boot/identity and bootagent/decide/decisions
)

// Compile checks the settings of one target.
func Compile(c *shape.Checker, v *tree.Value) (m Settings) {
	var d Values
	c.Decode(v, &d)
	c.In("kernel", func() { m.Args = KernelArgs(c, d.Kernel.Args) })
	m.Network = d.Network
	c.In("network", func() { checkNetwork(c, v.Get("network"), &m.Network) })
	c.In("agent", func() { m.Agent = compileAgent(c, v.Get("agent"), d.Agent) })
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
			c.Errorf(a.At, "kernel-arg", "caisson.watchdog=, caisson.deadline= and caisson.patience=SECONDS may be given, and caisson.decisions", "%s is set by caisson", a.S)
		case strings.HasPrefix(a.S, "init=") || strings.HasPrefix(a.S, "rdinit=") || strings.HasPrefix(a.S, "root="):
			c.Errorf(a.At, "kernel-arg", "", "%s would keep the agent from starting the node", a.S)
		default:
			out = append(out, a.S)
		}
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
