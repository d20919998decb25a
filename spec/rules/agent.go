// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// PolicyKey returns the key of a setting as a drift has it, of one as its author
// writes it.
func PolicyKey(kind, key string) string {
	switch {
	case kind == "sysctl":
		return SysctlPath(key)
	case path.IsAbs(key):
		return path.Clean(key)
	}
	return key
}

// PolicyName is the other way round: the key as its author writes it.
func PolicyName(kind, key string) string {
	return Spelled(spec.Drift{Item: kind, Key: key}).Key
}

// Enforcement checks the policy of a kind or of one setting of it.
func Enforcement(e spec.Enforcement) error {
	var f fields
	f.add("policy", oneOf(e.Policy, "a policy of "+e.Item, spec.Policies(e.Item)))
	if e.Key != "" {
		f.add("key", policyKey(e.Item, e.Key))
	}
	return f.err()
}

// Limits of a budget. The corrections of each setting that others change are on disk.
const (
	maxCorrections = 20
	leastPer       = 60
	mostPer        = 24 * 60 * 60
)

// Budget checks how often a setting is set again.
func Budget(b spec.Budget) error {
	var f fields
	f.add("corrections", refuse(b.Corrections < 1 || b.Corrections > maxCorrections, "range", "policy: report leaves a setting as it is",
		"from 1 to %d", maxCorrections))
	f.add("per", refuse(b.Per < leastPer || b.Per > mostPer, "range", "", "between a minute and a day"))
	return f.err()
}

func policyKey(kind, key string) error {
	switch {
	case kind == "sysctl":
		if !sysctlKey(key) {
			return invalid("sysctl-key", "as in vm.swappiness or net/ipv4/ip_forward", "%.150q is not a kernel parameter", SysctlName(key))
		}
	case spec.KeyIsPath(kind):
		return Path(key)
	default:
		if !printable(key) || strings.TrimSpace(key) != key {
			return invalid("policy-key", "write it as caisson-agent status does", "%.150q is not the key of a setting", key)
		}
	}
	return nil
}

// Confirm returns what is wrong with the time that an operator has to confirm a change:
// less than it takes to log in, or so long that nobody waits for its end.
func Confirm(c *spec.Confirm) error {
	if c != nil && (c.Within < 10 || c.Within > 24*60*60) {
		return fmt.Errorf("a change is confirmed within 10 s to 24 h, not %d s", c.Within)
	}
	return nil
}

// Times between the reports of a node on which nothing changes.
const (
	LeastToStore  = time.Hour // to a registry: each report stays there until that is swept
	LongestReport = 24 * time.Hour
)

// A node looks at itself each minute, and asks the registry with a look. One that asks less
// often than fleet:current is fresh for would call what it knows too old.
const (
	shortestPoll = time.Minute
	longestPoll  = 24 * time.Hour
)

// Poll checks how many seconds lie between questions to the registry.
func Poll(every int64) error {
	return refuse(every < int64(shortestPoll/time.Second) || every > int64(longestPoll/time.Second), "range", "",
		"the registry is asked every %s to %s, not every %d s", shortestPoll, longestPoll, every)
}

// Reporting checks where a node's reports go, and how often.
func Reporting(r spec.Reporting) error {
	var f fields
	switch {
	case (r.URL == "") == (r.Registry == ""):
		f.add("", invalid("report", "url of the fleet's service, or registry where there is none", "set either url or registry"))
	case r.URL != "":
		f.add("url", reportURL(r.URL))
	default:
		f.add("registry", reportRegistry(r.Registry))
	}
	switch {
	case r.Interval <= 0:
		f.add("interval", invalid("range", "", "the time between two reports is more than 0"))
	case r.Registry != "" && r.Interval < int64(LeastToStore/time.Second):
		f.add("interval", invalid("range", "changes of what runs, of health and of sync are reported immediately",
			"to a registry once in %s at most", LeastToStore))
	case r.Interval > int64(LongestReport/time.Second):
		f.add("interval", invalid("range", "", "the time between two reports is at most a day"))
	}
	return f.err()
}

// reportURL says whether reports may be sent there. A name and a password would stand
// in the overlay, which every reader of the registry sees.
func reportURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || strings.ContainsAny(text, " \t\r\n"):
		return invalid("url", "as in https://fleet.example:8443", "%q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("url", "as in https://fleet.example:8443", "%q is neither https nor http", text)
	case u.User != nil:
		return invalid("url", "what the service asks of a node is a file of the node",
			"the URL holds a user or a password, and everyone can read it")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return invalid("url", "", "%q has more than a host and a path", text)
	}
	return nil
}

// Metrics says whether the agent may show its metrics there.
func Metrics(m spec.Metrics) error {
	if m == (spec.Metrics{}) {
		return invalid("metrics", "give file, listen or both", "metrics names no place to read them")
	}
	var f fields
	f.given("file", m.File, MetricsFile)
	f.given("listen", m.Listen, Loopback)
	return f.err()
}

// MetricsFile says whether the agent may write its metrics there: what
// node_exporter's textfile collector reads, and no file of the system's.
func MetricsFile(p string) error {
	if err := Path(p); err != nil {
		return err
	}
	if path.Ext(p) != ".prom" || strings.HasPrefix(path.Base(p), ".") {
		return invalid("path", "as in /var/lib/prometheus/node-exporter/caisson.prom",
			"%.150q must end in .prom, and its name must not begin with a dot", p)
	}
	for _, dir := range []string{"/boot/", "/dev/", "/etc/", "/proc/", "/sys/", "/usr/"} {
		if strings.HasPrefix(p, dir) {
			return invalid("path", "as in /var/lib/prometheus/node-exporter/caisson.prom",
				"%.150q is below %s, where others write", p, strings.TrimSuffix(dir, "/"))
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
		return invalid("loopback", "from elsewhere a node is read through node_exporter: give a file",
			"%s can be reached from other machines", text)
	}
	return nil
}

const registryHint = "as in registry.example.org:5000/metal-a, or oci:./out for a directory"

var (
	registryPrefix = regexp.MustCompile(`^/[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	registryScheme = regexp.MustCompile(`^[a-z0-9+.-]+://`)
)

// Registry checks where a site says that it is published: host[:port]/prefix of a registry,
// or oci:DIR. A word alone is refused, although a host could have that name: a directory is
// meant more often.
func Registry(text string) error {
	if dir, layout := strings.CutPrefix(text, "oci:"); layout {
		return refuse(dir == "" || !printable(dir), "registry", "as in oci:./out", "%q names no directory", text)
	}
	bare := strings.TrimSuffix(text, "/")
	host, _, _ := strings.Cut(bare, "/")
	switch scheme := registryScheme.FindString(text); {
	case scheme != "":
		return invalid("registry", "write "+strings.TrimPrefix(text, scheme)+"; --plain-http of a verb talks HTTP",
			"%q has a scheme: registries are asked by https", text)
	case strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/"):
		return invalid("registry", "write oci:"+text, "%q is a directory, and not host[:port]/prefix of a registry", text)
	case bare == host && host != "localhost" && !strings.ContainsAny(host, ".:"):
		return invalid("registry", "write oci:./"+host+" for a directory, "+host+":443 for a host of that name",
			"%q is neither host[:port]/prefix of a registry nor oci:DIR", text)
	}
	return registry(bare, false)
}

// reportRegistry says whether reports may be put there. A layout is a directory of one
// machine, and a tag is each node's own.
func reportRegistry(text string) error { return registry(text, true) }

// registry checks host[:port]/prefix, see oci.ParseRef; the prefix may be absent unless it
// is asked for.
func registry(text string, prefix bool) error {
	u, err := url.Parse("https://" + text)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") || text != u.Host+u.Path:
	case (prefix || u.Path != "") && !registryPrefix.MatchString(u.Path):
		if name, tag, ok := strings.Cut(u.Path, ":"); ok && registryPrefix.MatchString(name) {
			return invalid("registry", "write "+u.Host+name+" without :"+tag, "%q has a tag or a digest: caisson names its own", text)
		}
	default:
		return nil
	}
	return invalid("registry", registryHint, "%q is not host[:port]/prefix of a registry", text)
}
