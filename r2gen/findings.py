"""Clinical findings that a chest X-ray report asserts: key phrases, unless their clause negates them.

Rules in the manner of NegEx (Chapman et al., 2001) and CheXpert's labeller (Irvin et al., 2019), but much
simpler: docs/r2gen.md describes their limits.
"""

import re

# In a phrase "..." matches up to five words, none of which says that something is normal, and "/" separates
# alternatives; each word may have a plural in -s.
PHRASES: dict[str, str] = {
    "cardiomegaly": "cardiomegaly, cardiac/heart enlargement, enlargement of ... heart/silhouette, "
    "heart/cardiac/silhouette ... enlarged, enlarged ... heart/silhouette, heart ... is/remains large, "
    "heart ... is/remains slightly/mildly/moderately large",
    "enlarged mediastinum": "widened/wide mediastinum, mediastinum/mediastinal ... widened, "
    "mediastinal widening, widening/prominence of ... mediastinum/hilum, hilar enlargement/fullness, "
    "mediastinum/mediastinal/hilar ... prominent, adenopathy, lymphadenopathy",
    "effusion": "effusion, pleural fluid, hydropneumothorax",
    "pneumothorax": "pneumothorax, pneumothoraces, hydropneumothorax",
    "consolidation": "consolidation, consolidated, consolidative, pneumonia, infectious process",
    "edema": "edema, heart failure, chf, vascular/pulmonary/venous congestion/engorgement, "
    "vascular/vasculature/vascularity ... engorged/congested",
    "atelectasis": "atelectasis, atelectases, atelectatic, collapsed lobe/lung, lobar/lung collapse, "
    "collapse of ... lobe/lung",
    "opacity": "opacity, opacities, opacification, opacified, infiltrate, infiltration, air space disease, "
    "airspace/air-space disease, interstitial disease/change/thickening/prominence/pattern, "
    "interstitial lung disease, reticular/reticulonodular pattern, "
    "increased/prominent/coarse/coarsened/irregular ... markings",
    "nodule or mass": "nodule, nodular opacity/opacities/density/densities, mass, masses, "
    "lung/cystic/cavitary lesion, tumor, neoplasm, carcinoma",
    "emphysema": "emphysema, emphysematous, copd, obstructive pulmonary disease, bullae, bullous, "
    "hyperinflated, hyperinflation, hyperexpanded, hyperexpansion, hyperlucent, "
    "flattened/flattening ... diaphragm/hemidiaphragm",
    "low lung volumes": "low lung volume, low volume, lung volume is/are/remain low, hypoinflated, "
    "hypoinflation",
    "scarring": "scar, scarring, fibrosis, fibrotic",
    "pleural thickening": "pleural thickening, blunting/blunted ... costophrenic, "
    "costophrenic ... blunted/blunting",
    "raised diaphragm": "elevated/raised/elevation ... diaphragm/hemidiaphragm, "
    "diaphragm/hemidiaphragm ... elevated/raised/elevation, eventration",
    "calcification": "granuloma, granulomata, granulomatous, calcified, calcification, calcific",
    "aortic disease": "tortuous, tortuosity, ectatic, ectasia, atherosclerotic, atherosclerosis, aneurysm, "
    "unfolded/unfolding ... aorta, aorta ... unfolded",
    "hernia": "hernia",
    "fracture": "fracture, fractured",
    "scoliosis": "scoliosis, scoliotic, dextroscoliosis, levoscoliosis, curvature, dextrocurvature, "
    "levocurvature, increased/accentuated ... kyphosis, kyphotic",
    "degenerative change": "degenerative, spondylosis, osteophyte, osteophytic, arthritic, arthritis, "
    "osteoarthritis, spurring, disc disease",
    "support device": "pacemaker, pacer, pacing, icd, defibrillator, picc, catheter, port, port-a-cath, "
    "central/venous line, tube, tracheostomy, stent, prosthetic/mechanical valve, valve replacement, "
    "monitor/ekg lead",
    "surgical change": "sternotomy, sternotomies, cabg, bypass, clip, suture, surgical, postsurgical, "
    "postoperative, sternal wire, screw, hardware, lobectomy, mastectomy, lumpectomy, cholecystectomy, "
    "arthroplasty, cervical/spinal fusion",
}

# Contains a finding's words but is not that finding.
_OTHER = (
    "pericardial/joint effusion, subcutaneous emphysema, soft tissue edema/mass/swelling, thyroid/body mass"
)
# Negates the rest of the clause.
_BEFORE = (
    "no, not, without, nor, neither, free of, clear of, negative for, absence of, lack of, resolved, "
    "resolution of, removal of, rather than, less likely, rule out, to exclude, evaluate/evaluation for"
)
# Negates the clause so far.
_AFTER = (
    "absent, resolved, cleared, removed, unlikely, doubtful, ruled out, excluded, "
    "not/longer seen/identified/present/visualized/visible/evident/appreciated/noted/detected/demonstrated, "
    "not definitely/clearly seen/identified/visualized/visible/evident"
)
# Looks like a negation, but negates no finding.
_MODIFIER = "significant/significantly/interval/appreciable/definite/substantial/substantially/further"
_NEITHER = (
    f"no/not/without change/changed, no/not/without {_MODIFIER} change/changed, "
    f"no/not/without {_MODIFIER} {_MODIFIER} change/changed, not only, not ... exclude, "
    "cannot/not ... excluded, cannot/not be ruled out"
)
# Begins a new clause, which a negation before it does not cover.
_CLAUSE = "but, however, although, though, except, aside from, apart from, there is/are"

_GAP = r"(?:(?!(?:normal|unremarkable|clear|intact) )\S+ ){0,5}?"
_SENTENCE = re.compile(r"[.;?!](?=\s|$)|\n")
_WORD = re.compile(r"[a-z0-9][a-z0-9'-]*")


def _pattern(phrases: str) -> re.Pattern[str]:
    """Compiles `phrases` for text in which a blank follows each word."""
    spelt = ("".join(map(_spelt, phrase.split())) for phrase in phrases.split(", "))
    return re.compile(rf"(?<!\S)(?:{'|'.join(spelt)})")


def _spelt(word: str) -> str:
    return _GAP if word == "..." else f"(?:{word.replace('/', '|')})s? "


_FOUND = {name: _pattern(phrases) for name, phrases in PHRASES.items()}
_DENIES_REST, _DENIES_START = _pattern(_BEFORE), _pattern(_AFTER)
_MEANINGLESS, _NEW_CLAUSE = _pattern(f"{_NEITHER}, {_OTHER}"), _pattern(_CLAUSE)


def asserted(report: str) -> list[str]:
    """Returns the findings that `report` asserts, in the order of `PHRASES`.

    A finding that is only raised as possible counts: the reader would look for it.
    """
    clauses = [_MEANINGLESS.sub("", clause) for clause in _clauses(report)]
    return [name for name, words in _FOUND.items() if any(_asserts(clause, words) for clause in clauses)]


def _clauses(report: str) -> list[str]:
    """Returns the clauses of all sentences, with a blank after every word."""
    sentences = ("".join(f"{word} " for word in _WORD.findall(s)) for s in _SENTENCE.split(report.lower()))
    return [clause for sentence in sentences for clause in _NEW_CLAUSE.split(sentence)]


def _asserts(clause: str, words: re.Pattern[str]) -> bool:
    """Returns True if `clause` has the words, not behind a negation, nor before one that refers backwards."""
    rest = _DENIES_REST.search(clause)
    end = rest.start() if rest else len(clause)
    start = max((match.start() for match in _DENIES_START.finditer(clause)), default=0)
    return any(start <= match.start() and match.end() <= end for match in words.finditer(clause))
