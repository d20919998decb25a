// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultTimeService is the package that a layer gets in which nothing provides [TimeDaemon].
const (
	DefaultTimeService = "systemd-timesyncd"
	TimeDaemon         = "time-daemon"
)

// TimeService is a time service of Debian that keeps the kernel's clock: its package, its unit,
// and the file with its servers.
type TimeService struct {
	Package string
	Unit    string // a root with the file of this unit has the service
	Config  string // the file that servers are written to
	Parts   string // pattern of the files that are read beside it, where that matters to [TimeService.Tells]
	// Text returns what Config has to say so that these servers are asked in place of those that the
	// package brings; was is the text that the package wrote.
	Text func(was string, servers []string) string
}

// TimeServices are those that caisson tells which servers to ask.
var TimeServices = []TimeService{
	{DefaultTimeService, "systemd-timesyncd.service", "/etc/systemd/timesyncd.conf.d/10-caisson.conf", "", timesyncd},
	{"chrony", "chrony.service", "/etc/chrony/chrony.conf", "/etc/chrony/conf.d/*.conf", chrony},
	{"ntpsec", "ntpsec.service", "/etc/ntpsec/ntp.conf", "", ntpsec},
}

// TimeServiceIn returns the service that a root has, where exists tells whether it has a path.
func TimeServiceIn(exists func(path string) bool) (TimeService, bool) {
	for _, s := range TimeServices {
		if exists("/usr/lib/systemd/system/" + s.Unit) {
			return s, true
		}
	}
	return TimeService{}, false
}

// TimePackages are the names of their packages.
func TimePackages() (names []string) {
	for _, s := range TimeServices {
		names = append(names, s.Package)
	}
	return names
}

// telling are the lines of chrony.conf(5) with which the kernel comes to know, or by which others
// may say so.
var telling = regexp.MustCompile(`(?mi)^[ \t]*(rtcsync|include)\b`)

// Tells reports whether a service with this text in its files lets the kernel know that it keeps
// the clock. Without that nobody else can know.
func (s TimeService) Tells(text string) bool { return s.Parts == "" || telling.MatchString(text) }

// timesyncd reads the file after its own, so an empty value ends the list of that.
func timesyncd(_ string, servers []string) string {
	return "[Time]\nNTP=\nNTP=" + strings.Join(servers, " ") + "\nFallbackNTP=\n"
}

// sources are the lines of chrony.conf(5) and ntp.conf(5) that name servers.
var sources = regexp.MustCompile(`(?m)^[ \t]*(pool|server|peer)[ \t]`)

// chrony writes the file and nothing into sources.d: without its pools it is another file
// anyway.
func chrony(was string, servers []string) string {
	var b strings.Builder
	b.WriteString(sources.ReplaceAllString(was, "#$0"))
	b.WriteString("\n# network.ntp of the site\n")
	for _, server := range servers {
		fmt.Fprintf(&b, "server %s iburst\n", server)
	}
	return b.String()
}

// ntpsec accepts fewer servers than Debian's file asks for only when it is configured to.
func ntpsec(was string, servers []string) string {
	return chrony(was, servers) + fmt.Sprintf("tos minclock %d minsane %d\n", min(len(servers), 4), min(len(servers), 3))
}
