// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// Event names an event that leads to a decision.
type Event string

// Events, as the page shows them. Of the service's rhythms a look is Begin and then Look, a
// question to the registry is Begin and then Answer; the others follow from acts.
const (
	Begin   Event = "begin"   // before anything else
	Look    Event = "look"    // a look at what runs
	Answer  Event = "answer"  // the registry was asked
	Try     Event = "try"     // a change is to be made
	Made    Event = "made"    // it was made, or failed
	Probed  Event = "probed"  // the way to the registry was tried
	Doubted Event = "doubted" // the way to the registry was tried without what is doubted
	Undo    Event = "undo"    // a change on trial is undone
	Effect  Event = "effect"  // a generation is in effect
	Judged  Event = "judged"  // its checks were looked at
	Swap    Event = "swap"    // another root waits, and its policy is asked when to start over
	Early   Event = "early"   // no service has started yet
	Boot    Event = "boot"    // the loader has asked the registry, or a medium
	Fetched Event = "fetched" // the loader has fetched the layer of what it is to enter, or could not
	Sought  Event = "sought"  // the loader has looked for a generation that proved itself before
)

// Facts hold everything that a decision depends on: values that were read before.
type Facts struct {
	Event Event

	// The machine.
	Attached  bool          // caisson did not boot this host
	Begun     bool          // this root was brought to what its overlay says at least once
	Remembers bool          // what is noted now is there after a boot
	Boot      string        // id of the kernel's boot
	Up        time.Duration // since it began
	Now       int64         // seconds since 1970
	Ended     bool          // this process is to end
	Retry     bool          // an operator asks for what failed, too

	// What is written down.
	Run     Run
	Best    *state.Generation // the newest that proved itself
	Current *state.Generation // the newest that proved itself on its own layer
	Staged  *state.Generation // accepted, and not proven
	Ahead   *state.Generation // what proved itself on a layer that is not its own
	Runs    *state.Generation // in effect on this root
	Root    state.Generation  // by which this root goes
	Undone  *state.Generation // what was on trial and undone, and is not tried again
	Without *record.Without   // what runs in part only

	Elsewhere bool   // Best needs another root than this
	HoldOver  bool   // the time of an operator's hold is over
	Return    bool   // a decision to go back was cut before this root was told, and it can be
	Paused    string // why nothing may be changed now, "" where it may
	Doubt     bool   // this root runs what came before what was rejected since the registry was not reached with it
	Outage    bool   // of Doubted: the loader of this boot did not reach the registry either

	// What has just happened, by event.
	Offer  Offer
	Try    Attempt
	Result Result
	Reach  string // of Probed and Doubted: why the registry was not reached, "" where it was
	Undo   Fault
	Proof  Proof
	Gates  Gates
	Awaits Awaited
	Fetch  Fetch
	Back   Back
	Prior  Prior
}

// Prior holds the reasons to set what is to be there before services start.
type Prior struct {
	Runs  int    // such runs of the same content that no agent has followed
	Cuts  string // what of it can cut the node off, "" for nothing
	Heard bool   // the registry answered before this boot
}

// Offer holds the generation that the registry, or the disk of a loader, has.
type Offer struct {
	Failed     bool // nothing that may act was had
	Held       bool // newer than what the node has, but it does not take it
	Unchanged  bool // what the node has already
	Pauses     bool // it says that nothing is to be changed
	Generation state.Generation
	Attempts   int    // boots of it that were begun before this one
	Here       bool   // its layer is one that this root can have as it is
	Live       bool   // it can be applied to the running root
	Why        string // why it cannot
	Uncounted  bool   // of a loader: an attempt could not be counted
	Unreached  bool   // of a loader: nobody answered
	Medium     bool   // of a loader: a medium was asked, which nobody reached the registry beside
}

// Fetch holds the result of fetching the layer that a loader is to enter.
type Fetch struct {
	Why       string // it is not here, "" where it is
	Late      bool   // it did not arrive in time
	TooLarge  bool   // it does not fit into the memory of this machine
	Unreached bool   // nobody answered any more
	Medium    bool   // it was read from a medium
}

// Back holds the result of looking for a generation that ran well before.
type Back struct {
	Found   bool   // one can run
	Kexec   string // why the arguments of a kexec may keep this loader from the registry, "" where they do not
	Overdue string // why the trial of this loader is over, "" where it is not
}

// Attempt is a change that is to be made.
type Attempt struct {
	Unreached string // why the registry is not reached before it, of a root that comes up
	Asked     bool   // its publisher asked for a confirmation, and there is something to go back to
	Cuts      string // what of it can cut the node off, "" for nothing
}

// Result holds the result of making a change.
type Result struct {
	Trial      state.Confirm // who has to confirm it, "" where nobody
	Failed     bool          // not all of it was made
	Why        string        // of that
	Busy       bool          // something that it takes away is in use, or the disk takes no writes
	RolledBack bool          // some of it was made, and taken back
	OtherLayer bool          // the layer changes with it
}

// Fault is why a change on trial is undone.
type Fault struct {
	Reason  string // "" where it is not the change's fault
	WayBack bool   // this root can go back to what proved itself, or to what it was at before
}

// Proof holds the evidence for a generation that is in effect.
type Proof struct {
	Of       state.Generation
	Keeps    bool // what ran is kept in effect, and not put in effect
	Applied  bool // a run has put it in effect; else the node ran the same before
	Unproven bool // this root came up with it, or was changed to it, and it has never proved itself
	Gates    bool // it has checks to pass
	Soaking  bool // the same content is judged already
	Health   string
}

// Gates holds the verdict of the checks, and the ways that lead back.
type Gates struct {
	Passed, Failed bool
	CutOff         bool // only a boot takes it back: this one does not reach the registry, or has read what only a start reads
	Why            string
	Good           bool // something ran well before, and can be verified
	SameLayer      bool // it belongs to a layer that this root can have as it is
	Live           bool // the rest of it can be changed on a running root
	Soft           bool // a soft-reboot leads back, over which memory lasts
}

// Awaited describes the root that waits.
type Awaited struct {
	Uncounted bool   // the state disk takes no writes
	Forgotten bool   // without a state disk: the registry had it when this machine started, and another root came up, as far as is known
	Missing   string // what of it is not here yet, "" where it is
}

// Acts.
const (
	PutBack          Act = "put back"              // undo the change on trial; the way is decided at Undo
	Follow           Act = "follow"                // end the hold
	Arrive           Act = "arrive"                // note that this root goes by an older generation
	Go               Act = "go on"                 // nothing is unfinished
	Watch            Act = "watch"                 // look and report, change nothing
	ComeUp           Act = "come up"               // apply to a root that has come up what nobody has proved
	Return           Act = "return"                // start the machine over into what proved itself
	Keep             Act = "keep"                  // correct what differs from what runs
	Stop             Act = "stop"                  // there is nothing to act on
	Report           Act = "report"                // say how the node is, and why nothing newer was had
	LookNow          Act = "look"                  // go on as a look does
	Decline          Act = "decline"               // say why, and go on as a look does
	NoteNumber       Act = "note the number"       // note a newer generation of what runs, and go on as a look does
	DeferGeneration  Act = "defer the generation"  // leave it to a later time
	Rest             Act = "rest"                  // put in effect a generation that says that nothing is to be changed
	Change           Act = "change"                // apply it to the running root, all of it or nothing
	ApplyUntested    Act = "apply untested"        // apply it as what is kept is
	TryForReach      Act = "try, for reach"        // save that it is on trial by the way to the registry, and make it
	TryForOperator   Act = "try, for the operator" // save that it is on trial by its operator, and make it
	MakeWithoutTrial Act = "make without a trial"  // make it
	DeferToBoot      Act = "defer to a boot"       // leave it to a boot: this root cannot be changed so
	RejectChange     Act = "reject the change"     // note the failure, and do not try it again
	RetryInAWhile    Act = "retry in a while"      // note the failure, and try it again in a while
	RetrySoon        Act = "retry soon"            // note the failure, and try it again
	AwaitOperator    Act = "await the operator"    // leave it to its operator, for a time
	Probe            Act = "probe"                 // try the way to the registry
	Compare          Act = "compare"               // try the way to the registry, for what is doubted
	Convict          Act = "convict"               // what is doubted stays rejected
	Absolve          Act = "absolve"               // what is doubted is not rejected any more
	Settle           Act = "settle"                // it is in effect
	UndoAndRetry     Act = "undo, retry"           // undo it, and try it again
	UndoForGood      Act = "undo for good"         // undo it, and do not try it again
	Forget           Act = "forget"                // put back what ran, and forget the trial
	Withhold         Act = "withhold"              // go on without what can cut the node off, and note why
	Restore          Act = "restore"               // put back what ran, and note why
	ComeUpWithout    Act = "come up without"       // take back what was set before services started, and come up without
	LeaveOut         Act = "leave out"             // set nothing before services start, and say so
	Set              Act = "set"                   // set what is to be there before services start
	SetHarmless      Act = "set harmless"          // set of it what cannot cut the node off
	SetOnTrial       Act = "set, on trial"         // save that it is on trial, and set it
	None             Act = "none"                  // nothing
	Renumber         Act = "renumber"              // the checks go on, for the newer number
	EndDeadline      Act = "end the deadline"      // end the deadline of this boot
	Prove            Act = "prove"                 // it is the newest that proved itself
	Soak             Act = "soak"                  // the checks decide
	BackLive         Act = "back, live"            // reject it, and put in effect what ran before
	BackBoot         Act = "back, boot"            // reject it, and start the machine over into what ran before
	KeepLooking      Act = "keep looking"          // go on with it and look from the start
	LookAgain        Act = "look again"            // look again
	NeverReboot      Act = "never reboot"          // never start over by itself
	DeferReboot      Act = "defer the reboot"      // start over later
	SetOut           Act = "set out"               // start over, in its turn
	Enter            Act = "enter"                 // stack its layer and switch to it
	EnterOld         Act = "enter old"             // enter what the node has
	FallBack         Act = "fall back"             // look for the best of what ran well before
	AskMedium        Act = "ask medium"            // ask a medium that carries a layer
	StartOver        Act = "start over"            // start the machine over
	AskAgain         Act = "ask again"             // show why nothing is entered, and ask again in a while
)

// quiet are the acts that change nothing on the node but what it says of itself.
var quiet = []Act{Go, None, Watch, Keep, Stop, Report, LookNow, Decline, Probe, Compare, LookAgain, DeferGeneration,
	Renumber, EndDeadline, DeferReboot, NeverReboot, AskMedium, AskAgain, LeaveOut, Set, SetHarmless}

// Table lists everything that a node does. Of the rows of an event the first one that holds counts.
var Table = []Row{
	{Name: "early-ended", On: Begin, Act: Forget,
		When: "a change on trial was begun before services started, in a boot that ended before its agent came",
		Does: "forgets the trial: that boot was one attempt",
		is:   func(f *Facts) bool { return f.onTrial() && f.Run.Early && f.Run.Boot != f.Boot }},
	{Name: "undo-after-restart", On: Begin, Act: PutBack,
		When: "a change is on trial that began before the machine was started over", Does: "undoes it",
		is:  func(f *Facts) bool { return f.onTrial() && f.Run.Boot != f.Boot },
		why: func(*Facts) string { return "the machine was started over before it was confirmed" }},
	{Name: "early-goes-on", On: Begin, Act: Go, When: "a change on trial was begun before services started",
		Does: "goes on, wherever that was cut: the agent makes the rest, and the trial ends with it",
		is:   func(f *Facts) bool { return f.Run.Phase == Prepared }},
	{Name: "undo-after-cut", On: Begin, Act: PutBack, When: "a change on trial was begun, and its agent has ended", Does: "undoes it",
		is:  func(f *Facts) bool { return f.Run.Phase == Changing },
		why: func(*Facts) string { return "the agent ended before it was confirmed" }},
	{Name: "undo-unconfirmed", On: Begin, Act: PutBack, When: "a change waits to be confirmed, and its time is over", Does: "undoes it",
		is:  func(f *Facts) bool { return f.waits() && f.Run.Left(f.Up) <= 0 },
		why: func(f *Facts) string { return fmt.Sprintf("nobody confirmed it within %d s", f.Run.Within) }},
	{Name: "hold-over", On: Begin, Act: Follow, When: "an operator's hold is over", Does: "follows the fleet again",
		is: func(f *Facts) bool { return f.HoldOver }, unplayed: "its holds have no end"},
	{Name: "resume-return", On: Begin, Act: Arrive, When: "going back to an older generation was cut", Does: "goes on with it",
		is: func(f *Facts) bool { return f.Return && !f.waits() }, unplayed: "its operator goes back to nothing"},
	{Name: "doubt", On: Begin, Act: Compare,
		When: "a generation was rejected or undone since the registry was not reached with it, and what ran before is in effect again",
		Does: "tries the way to the registry without it",
		is:   func(f *Facts) bool { return f.Doubt && f.Begun && !f.onTrial() }},
	{Name: "settled", On: Begin, Act: Go, When: "nothing is unfinished", Does: "goes on"},

	{Name: "nothing-runs", On: Look, Act: Stop, When: "nothing was ever accepted", Does: "asks the registry, later",
		is: func(f *Facts) bool { return f.Runs == nil }},
	{Name: "paused", On: Look, Act: Watch, When: "the node is paused, and this root has come up",
		Does: "looks and reports, changes nothing",
		is:   func(f *Facts) bool { return f.Paused != "" }, why: func(f *Facts) string { return f.Paused }},
	{Name: "come-up", On: Look, Act: ComeUp, When: "this root came up with a generation that was never in effect",
		Does: "applies it, on trial where it can cut the node off",
		is:   func(f *Facts) bool { return f.Run.Phase == Entering || f.Run.Phase == Prepared }},
	{Name: "back-by-boot", On: Look, Act: Return, When: "what runs cut the node off, and what proved itself needs another root",
		Does: "starts the machine over into that",
		is:   func(f *Facts) bool { return f.Run.Phase == Partial && f.Elsewhere && f.Remembers },
		why:  func(f *Facts) string { return f.Run.Why }},
	{Name: "keep", On: Look, Act: Keep, When: "else", Does: "corrects what differs from what runs"},

	{Name: "no-answer-at-first", On: Answer, Act: Stop,
		When: "no overlay was received that may take effect, and nothing runs", Does: "asks again, later",
		is: func(f *Facts) bool { return f.Offer.Failed && f.Runs == nil }},
	{Name: "no-answer", On: Answer, Act: Report, When: "no overlay was received that may take effect",
		Does: "goes on with what it has", is: func(f *Facts) bool { return f.Offer.Failed }},
	{Name: "early-first", On: Answer, Act: LookNow, When: "what is there before services start is set, on trial",
		Does: "makes the rest of that before anything newer", is: func(f *Facts) bool { return f.Run.Phase == Prepared }},
	{Name: "overtaken", On: Answer, Act: PutBack, When: "a change waits to be confirmed, and another generation came",
		Does: "undoes the one that waits, and decides again",
		is: func(f *Facts) bool {
			return f.waits() && !f.Offer.Held && !f.Run.To.Same(f.Offer.Generation)
		},
		why: func(f *Facts) string {
			return fmt.Sprintf("generation %d came before it was confirmed", f.Offer.Generation.Generation)
		}},
	{Name: "held", On: Answer, Act: LookNow, When: "an operator holds the node, or the generation was undone here",
		Does: "keeps what it has", is: func(f *Facts) bool { return f.Offer.Held }},
	{Name: "unchanged", On: Answer, Act: LookNow, When: "it is what the node has", Does: "keeps it",
		is: func(f *Facts) bool { return f.Offer.Unchanged }},
	{Name: "undone-before", On: Answer, Act: LookNow, When: "it was on trial here, and undone",
		Does:  "keeps what runs, until something newer or a person comes",
		is:    func(f *Facts) bool { return f.Runs != nil && f.Undone != nil && f.Undone.Same(f.Offer.Generation) },
		unmet: "a node that has something to go back to holds what was undone, and one that has nothing runs it in part"},
	{Name: "cuts-off", On: Answer, Act: LookNow, When: "it runs already, without what cut the node off", Does: "keeps it so",
		is: func(f *Facts) bool { return f.Runs != nil && f.Without.Of(f.Offer.Generation) && !f.Retry }},
	{Name: "rejected", On: Answer, Act: Decline, When: "it failed on this node before, or none of its boots came up",
		Does: "keeps what runs, until something newer or a person comes",
		is:   func(f *Facts) bool { return f.Runs != nil && f.refused() != "" }, why: func(f *Facts) string { return f.refused() }},
	{Name: "not-applied-yet", On: Answer, Act: LookNow,
		When: "this root came up with it, and nothing of it was applied yet", Does: "applies it",
		is: func(f *Facts) bool {
			return f.Run.Phase == Entering && f.Runs != nil && f.Runs.Pair(f.Offer.Generation)
		}},
	{Name: "same-content", On: Answer, Act: NoteNumber, When: "it is a newer number of what runs", Does: "notes the number",
		is: func(f *Facts) bool {
			return f.Runs != nil && f.Runs.Pair(f.Offer.Generation) && !f.partial(f.Offer.Generation)
		}},
	{Name: "first-on-another-layer", On: Answer, Act: DeferGeneration,
		When: "nothing runs yet, and it needs another root", Does: "waits for a boot",
		is:  func(f *Facts) bool { return f.Runs == nil && !f.Attached && !f.Offer.Here },
		why: func(*Facts) string { return "a reboot: another layer" }, unplayed: "it has booted what it runs"},
	{Name: "for-a-boot", On: Answer, Act: DeferGeneration, When: "not all of it can be changed on the running root",
		Does: "waits for a boot",
		is:   func(f *Facts) bool { return f.Runs != nil && !f.Attached && !f.Offer.Live },
		why:  func(f *Facts) string { return "a reboot: " + f.Offer.Why }},
	{Name: "pauses", On: Answer, Act: Rest, When: "it says that nothing is to be changed",
		Does: "notes that it is in effect, changes nothing",
		is:   func(f *Facts) bool { return f.Paused != "" && f.Runs != nil && f.Offer.Pauses }, why: func(f *Facts) string { return f.Paused },
		unplayed: "its overlays pause nobody"},
	{Name: "for-resume", On: Answer, Act: DeferGeneration, When: "the node is paused", Does: "waits until it is resumed",
		is: func(f *Facts) bool { return f.Paused != "" }, why: func(f *Facts) string { return f.Paused }},
	{Name: "change", On: Answer, Act: Change, When: "else", Does: "applies it to the running root, all of it or nothing"},

	{Name: "early-unreached", On: Try, Act: ComeUpWithout,
		When: "what was set before services started can have cut the node off, and the registry is not reached",
		Does: "takes it back and comes up without: what follows shows whose fault it is",
		is:   func(f *Facts) bool { return f.Run.Phase == Prepared && f.Try.Unreached != "" },
		why:  func(f *Facts) string { return f.Try.Unreached }},
	{Name: "untested", On: Try, Act: ApplyUntested,
		When: "this root comes up, it can cut the node off, and the registry is not reached before it",
		Does: "applies it without a trial: afterwards nothing would show what cut the node off",
		is:   func(f *Facts) bool { return f.Try.Unreached != "" }, why: func(f *Facts) string { return f.Try.Unreached }},
	{Name: "trial-by-operator", On: Try, Act: TryForOperator,
		When: "its publisher asked for a confirmation, and it changes something that can be taken back",
		Does: "saves that it is on trial, and makes it",
		is:   func(f *Facts) bool { return f.Try.Asked }, why: func(*Facts) string { return "who published it asked for that" }},
	{Name: "trial-by-reach", On: Try, Act: TryForReach, When: "it can cut the node off", Does: "saves that it is on trial, and makes it",
		is: func(f *Facts) bool { return f.Try.Cuts != "" }, why: func(f *Facts) string { return "it changes " + f.Try.Cuts }},
	{Name: "no-trial", On: Try, Act: MakeWithoutTrial, When: "else", Does: "makes it"},

	{Name: "left-to-boot", On: Made, Act: DeferToBoot, When: "it could not be begun, and its layer differs in accounts",
		Does: "waits for a boot",
		is: func(f *Facts) bool {
			return f.Result.Failed && f.Result.OtherLayer && !f.Result.RolledBack && !f.Ended
		}, unplayed: "its layers differ in more than accounts"},
	{Name: "cut-short", On: Made, Act: RetrySoon, When: "the agent was to end while it was made",
		Does:     "has taken it back; the next agent makes it",
		is:       func(f *Facts) bool { return f.Result.Failed && f.Ended },
		why:      func(*Facts) string { return "the agent was to end while it was made; the next one makes it" },
		unplayed: "its agent is cut, and never asked to end"},
	{Name: "not-begun", On: Made, Act: RetrySoon, When: "it could not be begun", Does: "changed nothing, and tries it again at each answer",
		is: func(f *Facts) bool { return f.Result.Failed && !f.Result.RolledBack }, why: func(f *Facts) string { return f.Result.Why },
		unplayed: "its changes fail in the middle"},
	{Name: "busy", On: Made, Act: RetryInAWhile, When: "something that it takes away is in use, or a disk is full or takes no writes",
		Does: "has taken it back; tries it again in an hour, and at a boot",
		is:   func(f *Facts) bool { return f.Result.Failed && f.Result.Busy }, why: func(f *Facts) string { return f.Result.Why }},
	{Name: "taken-back", On: Made, Act: RejectChange, When: "it failed", Does: "has taken it back, and does not try it again",
		is: func(f *Facts) bool { return f.Result.Failed }, why: func(f *Facts) string { return f.Result.Why }},
	{Name: "to-confirm", On: Made, Act: AwaitOperator, When: "its publisher asked for a confirmation", Does: "keeps it for that time",
		is: func(f *Facts) bool { return f.Result.Trial == state.ByOperator }},
	{Name: "to-reach", On: Made, Act: Probe, When: "it can have cut the node off", Does: "tries the way to the registry",
		is: func(f *Facts) bool { return f.Result.Trial == state.ByReach }},
	{Name: "made", On: Made, Act: Settle, When: "else", Does: "it is in effect"},

	{Name: "reached", On: Probed, Act: Settle, When: "the registry answers", Does: "it is in effect",
		is: func(f *Facts) bool { return f.Reach == "" }},
	{Name: "probe-cut-short", On: Probed, Act: UndoAndRetry, When: "the agent was to end",
		Does: "undoes it; the next agent makes it", is: func(f *Facts) bool { return f.Ended },
		unplayed: "its agent is cut, and never asked to end"},
	{Name: "cut-off", On: Probed, Act: UndoForGood, When: "else", Does: "undoes it, and does not try it again",
		why: func(f *Facts) string { return "after it " + f.Reach }},

	{Name: "doubt-cut-short", On: Doubted, Act: None, When: "the agent was to end", Does: "leaves it to the next agent",
		is: func(f *Facts) bool { return f.Ended }, unplayed: "its agent is cut, and never asked to end"},
	{Name: "untold", On: Doubted, Act: Absolve, When: "the registry does not answer now either, or did not answer the loader of this boot",
		Does: "takes the rejection back: nothing tells whose fault it was",
		is:   func(f *Facts) bool { return f.Reach != "" || f.Outage },
		why: func(f *Facts) string {
			if f.Reach == "" {
				return "the loader of this boot did not reach the registry either"
			}
			return "without it, too, " + f.Reach
		}},
	{Name: "told", On: Doubted, Act: Convict, When: "else",
		Does: "the newer one stays rejected: it is what cut the node off", why: func(*Facts) string { return "without it the registry answers" }},

	{Name: "undo-unblamed", On: Undo, Act: Forget, When: "it was not the change's fault", Does: "puts back what ran",
		is: func(f *Facts) bool { return f.Undo.Reason == "" }},
	{Name: "undo-in-part", On: Undo, Act: Withhold, When: "this root can go back to no generation that proved itself, or ran before",
		Does: "goes on with it, without what can cut the node off",
		is:   func(f *Facts) bool { return !f.Undo.WayBack }},
	{Name: "undo", On: Undo, Act: Restore, When: "else", Does: "puts back what proved itself last, or else what ran before"},

	{Name: "keep-on-trial", On: Effect, Act: None, When: "what is kept in effect waits to be confirmed, runs in part, or the agent is to end",
		Does: "proves nothing",
		is:   func(f *Facts) bool { return f.Proof.Keeps && (f.Ended || f.waits() || f.partial(f.Proof.Of)) }},
	{Name: "soak-goes-on", On: Effect, Act: Renumber, When: "its checks are looked at already",
		Does: "goes on with them", is: func(f *Facts) bool { return f.Proof.Soaking }},
	{Name: "not-offered", On: Effect, Act: EndDeadline,
		When: "it is neither what was accepted last nor an unproven one that this root came up with or was changed to, or was rejected",
		Does: "ends the deadline of this boot",
		is: func(f *Facts) bool {
			staged := f.Staged != nil && f.Staged.Same(f.Proof.Of)
			return !staged && !f.Proof.Unproven || staged && f.Staged.Failed != "" && f.Staged.Again == 0 && !f.Proof.Of.IsAhead()
		}},
	{Name: "proved-ahead", On: Effect, Act: EndDeadline, When: "it proved itself on this layer, and waits for its own",
		Does: "ends the deadline of this boot",
		is: func(f *Facts) bool {
			return f.Ahead != nil && f.Ahead.Same(f.Proof.Of) && f.Ahead.Pair(f.Proof.Of)
		}, unplayed: "its overlays are for one layer"},
	{Name: "not-applied", On: Effect, Act: None, When: "it has checks, and nothing of it was applied", Does: "proves nothing",
		is: func(f *Facts) bool {
			return !f.Proof.Applied && f.Proof.Gates && (f.Best == nil || f.Best.Overlay != f.Proof.Of.Overlay)
		}, unmet: "what runs unproven, and has checks, is judged already"},
	{Name: "runs-already", On: Effect, Act: Prove, When: "the same content proved itself", Does: "it is the newest that proved itself",
		is: func(f *Facts) bool { return !f.Proof.Applied }, why: func(*Facts) string { return "it runs already" }},
	{Name: "proved", On: Effect, Act: Prove, When: "it has no checks to pass", Does: "it is the newest that proved itself",
		is: func(f *Facts) bool { return !f.Proof.Gates }, why: func(f *Facts) string { return "applied: " + f.Proof.Health }},
	{Name: "soak", On: Effect, Act: Soak, When: "else", Does: "its checks decide, and the deadline of this boot ends"},

	{Name: "passed", On: Judged, Act: Prove, When: "all checks have held for their time", Does: "it is the newest that proved itself",
		is: func(f *Facts) bool { return f.Gates.Passed }, why: func(f *Facts) string { return f.Gates.Why }},
	{Name: "soaking", On: Judged, Act: LookAgain, When: "no check has failed too often", Does: "looks again",
		is: func(f *Facts) bool { return !f.Gates.Failed }, unplayed: "its checks say at once whether they hold"},
	{Name: "failed-while-paused", On: Judged, Act: LookAgain, When: "a check failed, and the node is paused",
		Does: "changes nothing until it is resumed",
		is:   func(f *Facts) bool { return f.Paused != "" }, why: func(f *Facts) string { return f.Paused }},
	{Name: "failed-stays", On: Judged, Act: KeepLooking,
		When: "a check failed, and no generation that proved itself before can run",
		Does: "goes on with it, broken, and looks from the start",
		is:   func(f *Facts) bool { return !f.Gates.Good }},
	{Name: "failed-back-live", On: Judged, Act: BackLive,
		When: "a check failed, the layer stayed, this boot reaches the registry, and it has read nothing that only a start reads",
		Does: "rejects it, and puts in effect what ran before",
		is:   func(f *Facts) bool { return f.Attached || f.Gates.SameLayer && f.Gates.Live && !f.Gates.CutOff }},
	{Name: "failed-back-boot", On: Judged, Act: BackBoot,
		When: "a check failed, and what ran before needs another root, or a boot that cut nothing off",
		Does: "rejects it, and starts the machine over into what ran before",
		is:   func(f *Facts) bool { return f.Remembers || f.Gates.Soft }},
	{Name: "failed-no-way-back", On: Judged, Act: KeepLooking, When: "a check failed, and a boot would forget that",
		Does: "goes on with it, broken, and looks from the start", unplayed: "its disk remembers"},

	{Name: "swap-uncounted", On: Swap, Act: NeverReboot, When: "the state disk takes no writes",
		Does: "never starts over by itself: no record would show that it was tried",
		is:   func(f *Facts) bool { return f.Awaits.Uncounted },
		why:  func(*Facts) string { return "the state disk takes no writes: no record would show that it was tried" }},
	{Name: "swap-forgotten", On: Swap, Act: NeverReboot,
		When: "there is no state disk, and the registry may have offered it at boot, but another root started",
		Does: "never starts over by itself: no record would show that it was tried",
		is:   func(f *Facts) bool { return f.Awaits.Forgotten },
		why: func(*Facts) string {
			return "the registry may have offered it at boot, but another root started: without a state disk no record would show that it was tried"
		}},
	{Name: "swap-on-trial", On: Swap, Act: DeferReboot, When: "a change is on trial",
		Does: "waits until it is confirmed, or undone", waits: spec.ForTurn,
		is: func(f *Facts) bool { return f.onTrial() },
		why: func(f *Facts) string {
			return fmt.Sprintf("generation %d waits to be confirmed", f.Run.To.Generation)
		}, unmet: "what waits to be confirmed is not accepted before, and a newer one undoes it"},
	{Name: "swap-soaking", On: Swap, Act: DeferReboot, When: "what runs has to pass its checks, and has not failed",
		Does: "waits until they decide", waits: spec.ForGates,
		is:  func(f *Facts) bool { return f.Run.Phase == Soaking },
		why: func(f *Facts) string { return fmt.Sprintf("generation %d has to pass its gates", f.Run.To.Generation) }},
	{Name: "swap-unstaged", On: Swap, Act: DeferReboot, When: "its images are not on the state disk, or in memory, yet",
		Does: "waits until they are", waits: spec.ForStaging,
		is:  func(f *Facts) bool { return f.Awaits.Missing != "" },
		why: func(f *Facts) string { return f.Awaits.Missing }},
	{Name: "swap", On: Swap, Act: SetOut, When: "else", Does: "takes its turn, as every operation that disturbs"},

	{Name: "boot-ask-medium", On: Boot, Act: AskMedium, When: "the registry was not reached",
		Does: "asks a medium that carries a layer, where there is one",
		is:   func(f *Facts) bool { return f.Offer.Failed && f.Offer.Unreached && !f.Offer.Medium }},
	{Name: "boot-no-answer", On: Boot, Act: FallBack, When: "nothing was had that may act",
		Does: "looks for the last good generation", is: func(f *Facts) bool { return f.Offer.Failed }},
	{Name: "boot-held", On: Boot, Act: EnterOld, When: "an operator holds the node", Does: "enters what it has",
		is: func(f *Facts) bool { return f.Offer.Held }},
	{Name: "boot-uncounted", On: Boot, Act: FallBack, When: "it is new, and the state disk is read-only",
		Does:     "looks for the last good generation",
		is:       func(f *Facts) bool { return f.Offer.Uncounted && !f.Offer.Unchanged && f.Best != nil },
		why:      func(*Facts) string { return "an attempt could not be counted, the state disk is read-only" },
		unplayed: "its disk remembers"},
	{Name: "boot-rejected", On: Boot, Act: FallBack, When: "it failed on this node before", Does: "looks for the last good generation",
		is:  func(f *Facts) bool { return f.Offer.Generation.Failed != "" && f.Offer.Generation.Again == 0 },
		why: func(f *Facts) string { return "it was rejected on this node: " + f.Offer.Generation.Failed }},
	{Name: "boot-too-often", On: Boot, Act: FallBack, When: "it was begun three times and never proved itself",
		Does: "looks for the last good generation",
		is:   func(f *Facts) bool { return f.Offer.Attempts >= state.MaxAttempts },
		why:  func(f *Facts) string { return fmt.Sprintf("it was begun %d times: it never came up", f.Offer.Attempts) }},
	{Name: "boot-newest", On: Boot, Act: Enter, When: "else", Does: "fetches its layer"},

	{Name: "early-begun", On: Early, Act: None, When: "the agent has begun on this root, or nothing runs", Does: "leaves everything to it",
		is: func(f *Facts) bool { return f.Begun || f.Runs == nil }, unplayed: "its services start once"},
	{Name: "early-too-often", On: Early, Act: LeaveOut, When: "two boots in a row set it, and no agent came after",
		Does: "leaves everything to the agent, once",
		is:   func(f *Facts) bool { return f.Prior.Runs >= state.MaxEarly },
		why: func(f *Facts) string {
			return fmt.Sprintf("%d boots in a row set it, and no agent came after", f.Prior.Runs)
		}},
	{Name: "early-beside-trial", On: Early, Act: SetHarmless, When: "a change is on trial", Does: "sets what cannot cut the node off",
		is: func(f *Facts) bool { return f.onTrial() }},
	{Name: "early-on-trial", On: Early, Act: SetOnTrial,
		When: "it can cut the node off, nothing proved it, and the registry answered before this boot",
		Does: "saves that it is on trial, and sets it",
		is:   func(f *Facts) bool { return f.Run.Phase == Entering && f.Prior.Cuts != "" && f.Prior.Heard },
		why:  func(f *Facts) string { return "it changes " + f.Prior.Cuts }},
	{Name: "early-unheard", On: Early, Act: SetHarmless, When: "it can cut the node off, and nothing proved it",
		Does: "sets what cannot: the agent asks the registry before the rest",
		is:   func(f *Facts) bool { return f.Run.Phase == Entering && f.Prior.Cuts != "" }},
	{Name: "early", On: Early, Act: Set, When: "else", Does: "sets it"},

	{Name: "fetched", On: Fetched, Act: Enter, When: "the kernel and all images are here",
		Does: "counts the attempt, and enters it", is: func(f *Facts) bool { return f.Fetch.Why == "" }},
	{Name: "fetch-ask-medium", On: Fetched, Act: AskMedium, When: "the registry is not reached any more, or is too slow",
		Does: "asks a medium that carries a layer, where there is one",
		is:   func(f *Facts) bool { return (f.Fetch.Unreached || f.Fetch.Late) && !f.Fetch.Medium },
		why:  func(f *Facts) string { return f.Fetch.Why }},
	{Name: "fetch-late", On: Fetched, Act: FallBack, When: "it did not arrive from a medium in time",
		Does: "looks for the last good generation, whose service fetches the rest",
		is:   func(f *Facts) bool { return f.Fetch.Late },
		why:  func(f *Facts) string { return f.Fetch.Why }},
	{Name: "fetch-too-large", On: Fetched, Act: FallBack, When: "its images do not fit into memory",
		Does: "fetches none of them, and looks for the last good generation",
		is:   func(f *Facts) bool { return f.Fetch.TooLarge },
		why:  func(f *Facts) string { return f.Fetch.Why }},
	{Name: "fetch-failed", On: Fetched, Act: FallBack, When: "else", Does: "looks for the last good generation",
		why: func(f *Facts) string { return f.Fetch.Why }},

	{Name: "sought-found", On: Sought, Act: Enter, When: "a good generation can run", Does: "enters it",
		is: func(f *Facts) bool { return f.Back.Found }},
	{Name: "sought-behind-kexec", On: Sought, Act: StartOver,
		When: "behind a kexec, for ten minutes nothing was reached, nothing came, or memory was lacking",
		Does: "starts the machine over: the arguments of the kexec may be why",
		is:   func(f *Facts) bool { return f.Back.Kexec != "" },
		why:  func(f *Facts) string { return f.Back.Kexec }},
	{Name: "sought-overdue", On: Sought, Act: StartOver, When: "the loader is on trial, and its time is over",
		Does: "starts the machine over; once its starts are spent, the loader before it runs",
		is:   func(f *Facts) bool { return f.Back.Overdue != "" },
		why:  func(f *Facts) string { return f.Back.Overdue }},
	{Name: "sought-none", On: Sought, Act: AskAgain, When: "else", Does: "shows why on the console, and asks again in a while"},
}

// onTrial reports whether a change has no outcome yet.
func (f *Facts) onTrial() bool {
	return f.Run.Phase == Changing || f.Run.Phase == Confirming || f.Run.Phase == Prepared
}
