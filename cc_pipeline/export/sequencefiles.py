"""Exports the SequenceFiles of 2012 of targets: their texts and their metadata."""

from __future__ import annotations

from cc_pipeline.derived_files.export import EXPORT_KINDS, export_slices
from cc_pipeline.export.files import ExportedTable, files_in, whole_folder, write_export_documents
from cc_pipeline.export.format import RecordsRequest, Written
from cc_pipeline.export.records import OutcomeCounts, written_records
from cc_pipeline.workspace.workspace import export_prefix


def write_sequencefiles(request: RecordsRequest) -> Written:
    """Writes the files into a folder, with a subfolder for each crawl and target.

    Raises ``EnvironmentFault`` for a partition that was not parsed, and if the lake or the disk refuses.
    """
    ledger = OutcomeCounts()
    notes: list[str] = []
    place = request.workspace.place
    with whole_folder(request.out) as folder:
        for crawl in request.crawls:
            report = export_slices(request.workspace, crawl, [target.slug for target in request.targets])
            notes += report.notes
            for target in request.targets:
                ledger.crawls[crawl] += int(report.per_target[target.slug]["metadata records"])
                prefix = export_prefix(crawl, target.slug)
                target_folder = folder / crawl / target.slug
                target_folder.mkdir(parents=True)
                for kind in EXPORT_KINDS:
                    for number in range(int(report.per_target[target.slug][f"{kind} files"])):
                        name = f"{kind}-{number:05d}"
                        (target_folder / name).write_bytes(place.read_all(prefix + name, 1 << 40).data)
        exported_table = ExportedTable("text and metadata", sum(ledger.crawls.values()), ledger.crawls)
        write_export_documents(folder, request.description, request.provenance, [exported_table], files_in(folder))
    return written_records(files_in(request.out), ledger.crawls, notes)
