// SPDX-License-Identifier: Apache-2.0

package spec

import "testing"

func TestTimeServices(t *testing.T) {
	const debian = "# pool of Debian\npool 2.debian.pool.ntp.org iburst\n  server a\nsourcedir /run/chrony-dhcp\nserverstats x\n"
	for name, want := range map[string]string{
		DefaultTimeService: "[Time]\nNTP=\nNTP=192.0.2.1 ntp.example.org\nFallbackNTP=\n",
		"chrony":           "# pool of Debian\n#pool 2.debian.pool.ntp.org iburst\n#  server a\nsourcedir /run/chrony-dhcp\nserverstats x\n\n# network.ntp of the site\nserver 192.0.2.1 iburst\nserver ntp.example.org iburst\n",
		"ntpsec":           "# pool of Debian\n#pool 2.debian.pool.ntp.org iburst\n#  server a\nsourcedir /run/chrony-dhcp\nserverstats x\n\n# network.ntp of the site\nserver 192.0.2.1 iburst\nserver ntp.example.org iburst\ntos minclock 2 minsane 2\n",
	} {
		s, ok := TimeServiceIn(func(path string) bool { return path == "/usr/lib/systemd/system/"+name+".service" })
		if !ok || s.Package != name {
			t.Fatalf("%s: %v, %v", name, s, ok)
		}
		if got := s.Text(debian, []string{"192.0.2.1", "ntp.example.org"}); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, tells := range map[string]bool{"pool x\nRTCSync\n": true, "include /x": true, "pool x\n# rtcsync\n": false, "rtcsyncs": false, "": false} {
		for _, s := range TimeServices {
			if got := s.Tells(text); got != (tells || s.Package != "chrony") {
				t.Errorf("%s: %q: %v", s.Package, text, got)
			}
		}
	}
	if s, ok := TimeServiceIn(func(string) bool { return false }); ok {
		t.Errorf("an empty root has %v", s)
	}
}
