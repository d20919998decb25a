// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"
	"path"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Metrics says whether the agent may show its metrics there.
func Metrics(m spec.Metrics) error {
	if m == (spec.Metrics{}) {
		return invalid("metrics", "give file, listen or both", "metrics names no place to read them")
	}
	var f fields
	if m.File != "" {
		f.add("file", MetricsFile(m.File))
	}
	if m.Listen != "" {
		f.add("listen", Loopback(m.Listen))
	}
	return f.err()
}

// MetricsFile says whether the agent may write its metrics there: what
// node_exporter's textfile collector reads, and no file of the system's.
func MetricsFile(p string) error {
	if err := Path(p); err != nil {
		return err
	}
	if path.Ext(p) != ".prom" || strings.HasPrefix(path.Base(p), ".") {
		return invalid("path", "as in /var/lib/prometheus/node-exporter/caisson.prom", "%.150q must end in .prom, and its name must not begin with a dot", p)
	}
	for _, dir := range []string{"/boot/", "/dev/", "/etc/", "/proc/", "/sys/", "/usr/"} {
		if strings.HasPrefix(p, dir) {
			return invalid("path", "as in /var/lib/prometheus/node-exporter/caisson.prom", "%.150q is below %s, where others write", p, strings.TrimSuffix(dir, "/"))
		}
	}
	return Reserved(p)
}

// Loopback says whether text is an address of the loopback interface with a port.
func Loopback(text string) error {
	at, err := netip.ParseAddrPort(text)
	switch {
	case err != nil || at.Port() == 0 || at.Addr().Zone() != "":
		return invalid("loopback", "as in 127.0.0.1:9469", "%.150q is not an address with a port", text)
	case !at.Addr().Unmap().IsLoopback():
		return invalid("loopback", "from elsewhere a node is read through node_exporter: give a file", "%s can be reached from other machines", text)
	}
	return nil
}
